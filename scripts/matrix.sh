#!/usr/bin/env bash
# The tests as they run on other machines: `bash scripts/matrix.sh [PATHS]`, or `just matrix [PATHS]`.
#
# Each line of the table is one run of the suite: without the compiled kernel, with its AVX2 variant, with OpenBLAS as for other
# processors, on one core, and under each other Python that is installed (a virtual environment of its own, kept in .cache/matrix).
# MATRIX_EXTRAS names what is installed there, by default test,torch; without torch its tests are skipped.
# A failure does not stop the rest; the exit code is 1 if any run failed. The whole takes the time of the suite for each line.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
declare -a names codes
run() {
  local name=$1
  shift
  echo "=== $name"
  "$@"
  names+=("$name") codes+=($?)
}
suite=(python -m pytest -n 2 --dist worksteal "${@:-tests}")
run "as it is" "${suite[@]}"
run "without the compiled kernel" env FORECASTER_KERNEL=off "${suite[@]}"
run "kernel for AVX2" env FORECASTER_KERNEL=avx2 "${suite[@]}"
run "OpenBLAS for Haswell" env OPENBLAS_CORETYPE=Haswell "${suite[@]}"
run "OpenBLAS for Zen" env OPENBLAS_CORETYPE=Zen "${suite[@]}"
run "one core" taskset -c 0 python -m pytest "${@:-tests}"
for version in 3.11 3.12 3.13; do
  python=
  for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
    "$candidate" -c '' 2>/dev/null && python=$candidate # pyenv has a shim even for versions that are off
  done
  [[ -n $python ]] || continue
  [[ $version != $(python -c 'import sys; print("%d.%d" % sys.version_info[:2])') ]] || continue
  room=.cache/matrix/$version
  [[ -x $room/bin/python ]] || "$python" -m venv "$room"
  if "$room/bin/python" -m pip install -q -e ".[${MATRIX_EXTRAS:-test,torch}]"; then
    run "Python $version" "$room/bin/python" -m pytest -n 2 --dist worksteal "${@:-tests}"
  else
    names+=("Python $version") codes+=("1, not installed")
  fi
done
echo
status=0
for index in "${!names[@]}"; do
  printf '%-30s exit code %s\n' "${names[$index]}" "${codes[$index]}"
  [[ ${codes[$index]} == 0 ]] || status=1
done
exit $status
