// Runs a converted model: its folder is the argument, inputs and outputs are JSON.
const fs = require("fs");
const path = require("path");
const tf = require("@tensorflow/tfjs");

async function main(folder) {
  const read = (name) => fs.readFileSync(path.join(folder, name));
  const model = JSON.parse(read("model.json"));
  const manifest = model.weightsManifest;
  const files = manifest.flatMap((group) => group.paths.map(read));
  const artifacts = {
    format: model.format,
    modelTopology: model.modelTopology,
    signature: model.signature,
    weightSpecs: manifest.flatMap((group) => group.weights),
    weightData: new Uint8Array(Buffer.concat(files)).buffer,
  };
  const graph = await tf.loadGraphModel({ load: async () => artifacts });
  const given = JSON.parse(fs.readFileSync(0));
  const inputs = {};
  const places = Object.values(model.signature.inputs);
  for (const [name, { shape, values }] of Object.entries(given)) {
    const place = places.find((place) => place.name.split(":")[0] === name);
    inputs[(place || places[0]).name] = tf.tensor(values, shape);
  }
  // They are called Identity:0, Identity_1:0, and so on.
  const number = (name) => Number((/_(\d+):/.exec(name) || [0, 0])[1]);
  const names = Object.values(model.signature.outputs).map((y) => y.name);
  names.sort((a, b) => number(a) - number(b));
  const outputs = [];
  for (const y of [].concat(await graph.executeAsync(inputs, names))) {
    outputs.push({ shape: y.shape, values: Array.from(await y.data()) });
  }
  console.log(JSON.stringify(outputs));
}

main(process.argv[2]);
