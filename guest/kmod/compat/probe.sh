#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# usage: probe.sh DIR COMPILER FLAGS...
# Prints -DNAME for every DIR/NAME.c that compiles.
dir=$1
shift
for source in "$dir"/*.c; do
	name=$(basename "$source" .c)
	if "$@" -c -o /dev/null "$source" >/dev/null 2>&1; then
		printf -- '-D%s ' "$name"
	fi
done
