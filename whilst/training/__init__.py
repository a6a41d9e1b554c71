"""From a recipe to weights: `train.train` -> `tasks.make_task` -> `loop.Loop.run` -> `Loop.update` -> `Task.loss`.

Knows nothing of live translation. Others use `train.train_all`.
"""
