"""Train models: `train.train_all` -> `train` -> `train_stage` -> `tasks.make_task` -> `loop.Loop.run` ->
`update` -> `add_gradient` -> `Task.draw`, `Task.loss`. Batches come from `data.batches.Batches`.

This package does not depend on live translation. The commands call `train.train_all` and `new_recipe.new`.
"""
