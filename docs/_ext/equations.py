"""Equations of public functions as LaTeX, which their pages show above the docstring's plain text.

A key is a function without ``hforest.``; the build fails where one is no public name. The notation is that of
the guide's pages.
"""

MARGIN = (
    r"r_v = x_{f_v} - t_v \; \text{ or } \; f_v \cdot x - t_v \qquad"
    r"v^* = \arg\min_v |r_v| \qquad r^* = r_{v^*}"
)
OUTPUT = r"h(x) = w_l \, |r^*|"
FORWARD = MARGIN + r"\qquad" + OUTPUT
BACKWARD = (
    r"s = \operatorname{sgn}(r^*) \sum_k w_{m,l,k} \, G_{n,m,k} \quad G = \frac{\partial L}{\partial y}\qquad"
    r"\frac{\partial L}{\partial x_n} \mathrel{+}= s \, \frac{\partial r^*}{\partial x_n} \qquad"
    r"\frac{\partial L}{\partial f_{m,v^*}} \mathrel{+}= s \, \frac{\partial r^*}{\partial f_{m,v^*}} \qquad"
    r"\frac{\partial L}{\partial t_{m,v^*}} \mathrel{-}= s \qquad"
    r"\frac{\partial L}{\partial w_{m,l,k}} \mathrel{+}= |r^*| \, G_{n,m,k}"
)
ADAM = (
    r"m \leftarrow \beta_1 m + (1 - \beta_1) g \qquad v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \qquad"
    r"p \leftarrow p - \eta \, \frac{m / (1 - \beta_1^s)}{\sqrt{v / (1 - \beta_2^s)} + \epsilon}"
)
ADAGRAD = r"h \leftarrow \sqrt{h^2 + g^2} \qquad p \leftarrow p - \eta \, \frac{g}{h}"
NEURAL = (
    r"d_v(x) = \frac{1}{1 + e^{-f_v(x)}} \qquad"
    r"\mu_l(x) = \prod_v d_v^{[l \text{ left of } v]} (1 - d_v)^{[l \text{ right of } v]}"
)
SHARES = r"P_T[y \mid x] = \sum_l \pi_{l,y} \, \mu_l(x) \qquad P_F = \frac{1}{M} \sum_T P_T"
IMPURITY = (
    r"H_\text{gini} = 1 - \sum_k p_k^2 \qquad H_\text{entropy} = -\sum_k p_k \log_2 p_k \qquad"
    r"H_\text{squared error} = \frac{\sum_i w_i y_i^2}{W} - \left( \frac{\sum_i w_i y_i}{W} \right)^2"
)
BOUND = (
    r"\sum_i \max\left( -w \cdot x_i + \ell(\theta_0, y_i), \; w \cdot x_i + \ell(\theta_1, y_i) \right)"
    r"- |w \cdot x_i|"
)

EQUATIONS = {
    "hinge.traverse": MARGIN,
    "hinge.forward": FORWARD,
    "hinge.forward_with_route": FORWARD,
    "hinge.leaf_outputs": OUTPUT,
    "hinge.backward": BACKWARD,
    "hinge.backward_sparse": BACKWARD,
    "hinge.adam_forward": ADAM,
    "hinge.adam_backward": BACKWARD,
    "hinge.fit_weights": r"(A^T A + a I) \, w = A^T y \qquad a = \frac{l_2}{n} \sum_n \sum_m (r^*_{n,m})^2",
    "torch.hinge_forest": FORWARD,
    "jax.hinge_forest": FORWARD,
    "neural.route": NEURAL,
    "neural.forward": NEURAL + r"\qquad" + SHARES,
    "neural.loss_backward": r"L = -\log P \qquad"
    r"\frac{\partial L}{\partial f_v} = d_v A_\text{right} - (1 - d_v) A_\text{left}",
    "neural.update_leaves": r"\pi_{l,y} \leftarrow \frac{1}{Z_l} \sum_{(x, y)}"
    r"\frac{\pi_{l,y} \, \mu_l(x)}{P_T[y \mid x]}",
    "neural.from_forest": r"f(x) = \text{scale} \cdot \frac{t - a \cdot x}{s}",
    "co2.surrogate": BOUND,
    "co2.fit_stump": r"\min_{w, \theta_0, \theta_1} " + BOUND + r"\qquad \lVert w \rVert^2 \le \nu",
    "split.impurity": IMPURITY,
    "split.best_split": r"\text{gain} = W H - \sum_b W_b H_b",
    "optim.adagrad": ADAGRAD,
    "optim.adagrad_rows": ADAGRAD,
    "optim.adam": ADAM,
    "optim.adam_rows": ADAM,
    "optim.adam_catch_up": r"R_s(m, v) = \sum_{k \ge 1} \frac{m \, \beta_1^k / (1 - \beta_1^{s+k})}"
    r"{\sqrt{v \, \beta_2^k / (1 - \beta_2^{s+k})} + \epsilon}",
    "layers.normalize": r"z = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}",
    "layers.softmax_loss": r"L = -\frac{1}{n} \sum_i \log \frac{e^{s_{i, y_i}}}{\sum_k e^{s_{i,k}}}",
    "project.project": r"z_{i,p} = \sum_{j = \text{indptr}_p}^{\text{indptr}_{p+1} - 1} \text{data}_j \,"
    r"x_{i, \text{indices}_j}",
}
