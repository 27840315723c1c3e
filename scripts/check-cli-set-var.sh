#!/bin/sh
# check-cli-set-var.sh NAME: prints y if NAME was set on the command line, else n.
# Under make that is make's own command line (KHARNESS_MAKE_VARS); else an environment variable that is not empty.
case $1 in
'' | *[!A-Za-z0-9_]*)
	echo "error: the name of a variable is needed" >&2
	exit 2
	;;
esac
if [ -n "${KHARNESS_MAKE_VARS+set}" ]; then
	case " $KHARNESS_MAKE_VARS " in
	*" $1 "*) echo y ;;
	*) echo n ;;
	esac
elif [ -n "$(printenv "$1")" ]; then
	echo y
else
	echo n
fi
