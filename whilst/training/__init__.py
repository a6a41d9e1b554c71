"""Train models: `train.train` -> `tasks.make_task` -> `loop.Loop.run` -> `Loop.update` -> `Task.loss`.

This package does not depend on live translation. The commands call `train.train_all` and `new_recipe.new`.
"""
