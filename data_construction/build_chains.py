"""Roll out a reasoning teacher and keep its chains for SFT; `notewriter chains` is the same.

python data_construction/build_chains.py --config configs/data/rearag_musique.yaml --output_dir data/chains
"""

import sys

from notewriter.data.build_chains import main
from notewriter.ground.errors import run

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
