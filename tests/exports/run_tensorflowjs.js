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
  const outputs = [];
  for (const { shape, values } of JSON.parse(fs.readFileSync(0))) {
    const y = await graph.executeAsync(tf.tensor(values, shape));
    outputs.push({ shape: y.shape, values: Array.from(await y.data()) });
  }
  console.log(JSON.stringify(outputs));
}

main(process.argv[2]);
