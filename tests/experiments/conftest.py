from written_runs import noted_runs as noted_runs
from written_runs import write_run as write_run
