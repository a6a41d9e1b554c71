"""From a recipe to weights: stages, tasks, the training loop, optimiser, validation, distillation.

Knows nothing of live translation. Others use `train.train_all`.
"""
