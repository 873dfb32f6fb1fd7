"""Small node and task lists of the kind that the placement benchmark reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scheduler.core.placement_room import NodeSpec, Shape


def some_nodes() -> list[NodeSpec]:
    """40 nodes with 212 GPUs of three models: dense ones, and some with much CPU for each GPU."""
    return (
        [NodeSpec(96_000, 393_216, 8, "G2")] * 19
        + [NodeSpec(104_000, 524_288, 2, "T4")] * 13
        + [NodeSpec(32_000, 131_072, 4, "V100")] * 7
        + [NodeSpec(16_000, 122_880, 6, "P100")]
    )


def some_tasks(seed: int = 7, count: int = 300, bound_share: float = 0.0) -> list[Shape]:
    """Tasks drawn from kinds like those of a production cluster; some bound to a model if asked for."""
    rng = np.random.default_rng(seed)
    kinds = [
        (Shape(3_000, 8_192, 1, 810), 0.16),
        (Shape(11_000, 30_000, 1, 1000), 0.30),
        (Shape(3_000, 8_192, 1, 1000), 0.08),
        (Shape(12_000, 40_000, 1, 470), 0.12),
        (Shape(12_000, 40_000, 1, 650), 0.04),
        (Shape(4_000, 15_000, 1, 320), 0.08),
        (Shape(4_000, 15_000, 1, 230), 0.04),
        (Shape(4_000, 15_000, 1, 160), 0.02),
        (Shape(12_500, 20_000), 0.11),
        (Shape(32_000, 65_000), 0.03),
        (Shape(20_000, 60_000, 2, 1000), 0.01),
        (Shape(80_000, 200_000, 8, 1000), 0.01),
    ]
    drawn = rng.choice(len(kinds), size=count, p=[share for _, share in kinds])
    tasks = [kinds[index][0] for index in drawn]
    bound = rng.random(count) < bound_share
    models = rng.choice(["T4", "V100", "P100", "G2"], size=count)
    return [
        Shape(task.cpu_milli, task.memory_mib, task.gpus, task.gpu_milli, (str(model),))
        if is_bound and task.gpus == 1
        else task
        for task, is_bound, model in zip(tasks, bound, models, strict=True)
    ]


def write_lists(folder: Path, nodes: list[NodeSpec], tasks: list[Shape]) -> tuple[Path, Path]:
    """The two CSV files."""
    node_file, task_file = folder / "nodes.csv", folder / "tasks.csv"
    node_lines = [f"n{i},{n.cpu_milli},{n.memory_mib},{n.gpus},{n.model}" for i, n in enumerate(nodes)]
    task_lines = [
        f"t{i},{t.cpu_milli},{t.memory_mib},{t.gpus},{t.gpu_milli},{'|'.join(t.models)}" for i, t in enumerate(tasks)
    ]
    node_file.write_text("\n".join(["sn,cpu_milli,memory_mib,gpu,model", *node_lines]) + "\n")
    task_file.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *task_lines]) + "\n")
    return node_file, task_file
