#!/usr/bin/env bash
# The tests as they run on other machines: `bash scripts/matrix.sh [--long] [PATHS]`, or `just matrix [--long] [PATHS]`.
#
# Three runs of the suite combine the variants, so that each runs once: the compiled kernel off, its AVX2 variant and as it is here;
# OpenBLAS as for two other processors and as here; one core; and the two latest other Pythons that are installed, the first of them with
# pandas 2 (each has a virtual environment of its own, kept in .cache/matrix). A run names what it combines; --long tells which part of it a failure is due to:
# each variant alone, a run for each. MATRIX_EXTRAS names what is installed for the Pythons, by default test,torch; without torch its
# tests are skipped; MATRIX_WORKERS is the number of processes of a run on all cores, by default 2. A failure does not stop the rest; the
# exit code is 1 if any run failed, or a Python could not be installed.
#
# OpenBLAS 0.3.34 crashes on AMD's Zen 4 and 5 as soon as it is told to be another processor (its issues 6013 and 6021). Where it does, a run
# goes without that variant and says so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
long=
if [[ ${1:-} == --long ]]; then
  long=yes
  shift
fi
paths=("${@:-tests}")
two_cores=(-n "${MATRIX_WORKERS:-2}" --dist worksteal)
declare -a names=() codes=() pythons=()
run() { # NAME COMMAND...
  local name=$1
  shift
  echo "=== $name"
  "$@"
  names+=("$name") codes+=($?)
}
find_python() { # VERSION: prints the path of that Python, or nothing
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    # pyenv has a shim even for versions that are off
    "$candidate" -c '' 2>/dev/null && { echo "$candidate"; return; }
  done
}
prepare() { # VERSION: makes its environment, and sets $room; fails if that cannot be done
  room=.cache/matrix/$1
  [[ -x $room/bin/python ]] || "$(find_python "$1")" -m venv "$room"
  local -a older=()
  [[ $1 == "$with_older_pandas" ]] && older=("pandas<3")
  "$room/bin/python" -m pip install -q -e ".[${MATRIX_EXTRAS:-test,torch}]" "${older[@]}"
}
here=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for version in 3.11 3.12 3.13; do
  [[ $version != "$here" && -n $(find_python "$version") ]] && pythons+=("$version")
done
with_older_pandas=none # of the two latest other Pythons, the first
[[ ${#pythons[@]} == 1 ]] && with_older_pandas=${pythons[0]}
[[ ${#pythons[@]} -gt 1 ]] && with_older_pandas=${pythons[-2]}

survives() { # PYTHON VARIABLE=VALUE: whether a product of matrices does
  (env "$2" "$1" -c 'import numpy as np; np.ones((34, 400)) @ np.ones((400, 7))') 2> /dev/null
}

run_with() { # VERSION NAME PREFIX... -- PYTEST OPTIONS...: a run under that Python, or under this one if VERSION is empty
  local version=$1 name=$2 python=python
  shift 2
  local -a prefix=()
  while [[ $1 != -- ]]; do
    prefix+=("$1")
    shift
  done
  shift
  if [[ -n $version ]]; then
    name="$name${name:+, }Python $version"
    [[ $version == "$with_older_pandas" ]] && name="$name with pandas 2"
    if ! prepare "$version"; then
      names+=("$name") codes+=("1, not installed")
      return
    fi
    python=$room/bin/python
  fi
  local -a kept=()
  local word
  for word in "${prefix[@]}"; do
    if [[ $word == OPENBLAS_CORETYPE=* ]] && ! survives "$python" "$word"; then
      name="$name, but not as $word, at which OpenBLAS crashes here"
    else
      kept+=("$word")
    fi
  done
  run "$name" "${kept[@]}" "$python" -m pytest "$@" "${paths[@]}"
}

no_kernel="without the compiled kernel" avx2="kernel for AVX2" haswell="OpenBLAS for Haswell" zen="OpenBLAS for Zen"
if [[ -n $long ]]; then
  run_with "" "as it is" env -- "${two_cores[@]}"
  run_with "" "$no_kernel" env FORECASTER_KERNEL=off -- "${two_cores[@]}"
  run_with "" "$avx2" env FORECASTER_KERNEL=avx2 -- "${two_cores[@]}"
  run_with "" "$haswell" env OPENBLAS_CORETYPE=Haswell -- "${two_cores[@]}"
  run_with "" "$zen" env OPENBLAS_CORETYPE=Zen -- "${two_cores[@]}"
  run_with "" "one core" taskset -c 0 -- -n 0
  for version in "${pythons[@]}"; do
    run_with "$version" "" env -- "${two_cores[@]}"
  done
else
  pythons=("" "" "${pythons[@]}") # an empty one stands for this Python
  run_with "" "as it is" env -- "${two_cores[@]}"
  run_with "${pythons[-2]}" "$no_kernel, $haswell" env FORECASTER_KERNEL=off OPENBLAS_CORETYPE=Haswell -- "${two_cores[@]}"
  run_with "${pythons[-1]}" "$avx2, $zen, one core" \
    env FORECASTER_KERNEL=avx2 OPENBLAS_CORETYPE=Zen taskset -c 0 -- -n 0
fi
echo
status=0
for index in "${!names[@]}"; do
  printf '%-70s exit code %s\n' "${names[$index]}" "${codes[$index]}"
  [[ ${codes[$index]} == 0 ]] || status=1
done
exit $status
