"""Pictures of what CTR and ST live on, made on a trained model, with the numbers behind them.

They correspond to figures 1, 4, 5 and 17 of DiSC (arXiv 2605.25798) and to that of its attention
probabilities; the paper draws them on PixArt-Σ, this project on the models that it ships.
`golden.inspect.study` runs the model, `golden.inspect.report` makes numbers and figures of it.
"""
