"""The division of a training's work among processes: launch profiles, or a file that `accelerate config` wrote."""

from pathlib import Path

from notewriter.ground import recipes
from notewriter.ground.errors import UserError

PROFILES = recipes.RECIPES / "accelerate"

SEVERAL_MACHINES = {
    "num_machines": "how many machines train together; each runs this command",
    "machine_rank": "the number of this machine, from 0",
    "main_process_ip": "the address of machine 0",
    "main_process_port": "the port on machine 0 at which the processes meet",
}
"""Options of `accelerate launch` that are passed on."""

OF_THE_LAUNCH = ("accelerate", "num_processes", "log_dir", *SEVERAL_MACHINES)
"""The options of `notewriter train` that are not the training's own; a cluster's job sets all but the first."""


def forwards(total: int, processes: int, forward: int) -> int:
    """The forwards of each process in a step of `total` rows, with `forward` rows in each.

    Raises:
        UserError: that is not a whole number.
    """
    if total < 1 or total % (processes * forward):
        raise UserError(
            f"total_batch_size {total} is not a multiple of {processes} process(es) x "
            f"per_device_train_batch_size {forward}; change one of them"
        )
    return total // (processes * forward)


def profiles() -> list[str]:
    """The names of the launch profiles that are part of the package."""
    return sorted(path.stem for path in PROFILES.glob("*.yaml"))


def profile(name: str) -> Path:
    """The file of a launch profile, by its path or its name.

    Raises:
        UserError: there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    if name not in profiles():
        raise UserError(f"--accelerate {name}: is no file and no profile; choose one of: {', '.join(profiles())}")
    return PROFILES / f"{name}.yaml"
