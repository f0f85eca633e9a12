"""The equations of the docstrings in LaTeX, by their plain text.

Docstrings have them as text, for `help`. A build fails at an equation that
is not here, so that none can change in one place only.
"""

_LN = r"\operatorname{LN}"
_BN = r"\operatorname{BN}_t"
_NORM = r"\operatorname{N}"
_LSTM = r"""
\begin{{aligned}}
{{}}[i \; f \; \tilde c \; o] &= {gates} \\
c' &= \sigma(f) \odot c + \sigma(i) \odot \tanh(\tilde c) \\
h' &= \sigma(o) \odot \tanh({state})
\end{{aligned}}
"""
_TAIL = (
    " c' = sigmoid(f) * c + sigmoid(i) * tanh(c~) h' = sigmoid(o) * tanh({})"
)

LATEX = {
    "[i f c~ o] = LN(h R; recurrent_gamma, recurrent_beta) + LN(x W; "
    "kernel_gamma, kernel_beta) + bias"
    + _TAIL.format("LN(c'; state_gamma, state_beta)"): _LSTM.format(
        gates=rf"{_LN}(h R; \gamma_r, \beta_r) + "
        rf"{_LN}(x W; \gamma_k, \beta_k) + b",
        state=rf"{_LN}(c'; \gamma_s, \beta_s)",
    ),
    "[i f c~ o] = BN_t(h R; recurrent_gamma) + BN_t(x W; kernel_gamma) + bias"
    + _TAIL.format("BN_t(c'; state_gamma, state_beta)"): _LSTM.format(
        gates=rf"{_BN}(h R; \gamma_r) + {_BN}(x W; \gamma_k) + b",
        state=rf"{_BN}(c'; \gamma_s, \beta_s)",
    ),
    "[i f c~ o] = h N(R; recurrent_g) + x N(W; kernel_g) + bias"
    + _TAIL.format("c'"): _LSTM.format(
        gates=rf"h \, {_NORM}(R; g_r) + x \, {_NORM}(W; g_k) + b", state="c'"
    ),
    "a = x W + h R + bias h' = f(gamma * (a - mean(a)) / sqrt(var(a) + "
    "epsilon) + beta)": r"""
\begin{aligned}
a &= x W + h R + b \\
h' &= f\left(\gamma \odot
\frac{a - \operatorname{mean}(a)}
{\sqrt{\operatorname{var}(a) + \epsilon}} + \beta\right)
\end{aligned}
""",
    "[z r] = LN(h R_zr) + LN(x W_zr) h^ = tanh(LN(x W_h) + sigmoid(r) * "
    "LN(h R_h)) h' = (1 - sigmoid(z)) * h + sigmoid(z) * h^": r"""
\begin{aligned}
{}[z \; r] &= \operatorname{LN}(h R_{zr}) + \operatorname{LN}(x W_{zr}) \\
\hat h &= \tanh(\operatorname{LN}(x W_h)
+ \sigma(r) \odot \operatorname{LN}(h R_h)) \\
h' &= (1 - \sigma(z)) \odot h + \sigma(z) \odot \hat h
\end{aligned}
""",
    "[a_zr a_h] = [LN(x W_zr) LN(x W_h)] + bias [d_zr d_h] = [LN(h R_zr) "
    "LN(h R_h)] + recurrent_bias [z r] = a_zr + d_zr h~ = tanh(a_h + "
    "sigmoid(r) * d_h) h' = (1 - sigmoid(z)) * h + sigmoid(z) * h~": r"""
\begin{aligned}
{}[a_{zr} \; a_h] &= [\operatorname{LN}(x W_{zr}) \;
\operatorname{LN}(x W_h)] + b \\
{}[d_{zr} \; d_h] &= [\operatorname{LN}(h R_{zr}) \;
\operatorname{LN}(h R_h)] + b_r \\
{}[z \; r] &= a_{zr} + d_{zr} \\
\tilde h &= \tanh(a_h + \sigma(r) \odot d_h) \\
h' &= (1 - \sigma(z)) \odot h + \sigma(z) \odot \tilde h
\end{aligned}
""",
    "log P(y_i | x) = (eta_i y_i - A(eta_i)) / phi + c(y_i, phi) E[y_i | x] "
    "= f(eta_i), Var[y_i | x] = phi f'(eta_i)": r"""
\begin{aligned}
\log P(y_i \mid x) &= \frac{\eta_i y_i - A(\eta_i)}{\phi} + c(y_i, \phi) \\
\operatorname{E}[y_i \mid x] &= f(\eta_i), \qquad
\operatorname{Var}[y_i \mid x] = \phi f'(\eta_i)
\end{aligned}
""",
    "F = E_x[Cov[y | x] / phi^2 (x) [[x x^T, x], [x^T, 1]]]": r"""
F = \operatorname{E}_x\left[\frac{\operatorname{Cov}[y \mid x]}{\phi^2}
\otimes \begin{bmatrix} x x^\top & x \\ x^\top & 1 \end{bmatrix}\right]
""",
    "F_ij = E_x[Cov[y_i, y_j | x] / phi^2 u_i u_j^T] u_i = [chi_i g_i / "
    "sigma_i, 1, n_i] chi_i = x - dmu_i/dw_i - n_i dsigma_i/dw_i": r"""
\begin{aligned}
F_{ij} &= \operatorname{E}_x\left[
\frac{\operatorname{Cov}[y_i, y_j \mid x]}{\phi^2} u_i u_j^\top\right] \\
u_i &= \left[\chi_i \frac{g_i}{\sigma_i}, \; 1, \; n_i\right] \\
\chi_i &= x - \frac{\partial \mu_i}{\partial w_i}
- n_i \frac{\partial \sigma_i}{\partial w_i}
\end{aligned}
""",
    "F = E_x[J^T Cov[y | x] J] / phi^2": r"""
F = \frac{1}{\phi^2} \operatorname{E}_x\left[
J^\top \operatorname{Cov}[y \mid x] J\right]
""",
    "batch: G = E_x[Cov[y | x]] (32) layer: G_ij = E_x[Cov[y_i, y_j | x] "
    "(a_i - mu) (a_j - mu) / sigma^2] (33) weight: G_ij = E_x[Cov[y_i, y_j | "
    "x] a_i a_j / (||w_i|| ||w_j||)] (34)": r"""
\begin{aligned}
\text{batch:} \quad G &=
\operatorname{E}_x[\operatorname{Cov}[y \mid x]] & (32) \\
\text{layer:} \quad G_{ij} &= \operatorname{E}_x\left[
\operatorname{Cov}[y_i, y_j \mid x]
\frac{(a_i - \mu)(a_j - \mu)}{\sigma^2}\right] & (33) \\
\text{weight:} \quad G_{ij} &= \operatorname{E}_x\left[
\operatorname{Cov}[y_i, y_j \mid x]
\frac{a_i a_j}{\lVert w_i \rVert \lVert w_j \rVert}\right] & (34)
\end{aligned}
""",
    "state_t = sqrt(mean(s_t^2)) summed_inputs_t = sqrt(mean((x_t W + "
    "h_{t-1} R)^2)) gradient_t = sqrt(mean_b(||d(c_b . h_T) / d s_t||^2))": r"""
\begin{aligned}
\text{state}_t &= \sqrt{\operatorname{mean}(s_t^2)} \\
\text{summed inputs}_t &=
\sqrt{\operatorname{mean}((x_t W + h_{t-1} R)^2)} \\
\text{gradient}_t &= \sqrt{\operatorname{mean}_b\left(\left\lVert
\frac{\partial (c_b \cdot h_T)}{\partial s_t}\right\rVert^2\right)}
\end{aligned}
""",
    "E_x[sum_i (f(eta_i) (eta_i - eta_i') - A(eta_i) + A(eta_i')) / phi]": r"""
\operatorname{E}_x\left[\sum_i \frac{f(\eta_i) (\eta_i - \eta_i')
- A(\eta_i) + A(\eta_i')}{\phi}\right]
""",
    "G_ij = E_x[Cov[y_i, y_j | x] a_i a_j / (||w_i|| ||w_j||)] / phi^2": r"""
G_{ij} = \frac{1}{\phi^2} \operatorname{E}_x\left[
\operatorname{Cov}[y_i, y_j \mid x]
\frac{a_i a_j}{\lVert w_i \rVert \lVert w_j \rVert}\right]
""",
    "y = gamma * (x - mean) / sqrt(variance + epsilon) + beta": r"""
y = \gamma \odot \frac{x - \operatorname{mean}}
{\sqrt{\operatorname{variance} + \epsilon}} + \beta
""",
    "y[:, t] = gamma * (x[:, t] - mean_t) / sqrt(variance_t + epsilon) + "
    "beta": r"""
y_t = \gamma \odot \frac{x_t - \operatorname{mean}_t}
{\sqrt{\operatorname{variance}_t + \epsilon}} + \beta
""",
    "moving = momentum * moving + (1 - momentum) * batch": r"""
\text{moving} = \text{momentum} \cdot \text{moving}
+ (1 - \text{momentum}) \cdot \text{batch}
""",
    "y = activation(x . (g * v / ||v||) + bias)": r"""
y = \operatorname{activation}\left(x \, g \frac{v}{\lVert v \rVert}
+ b\right)
""",
}
