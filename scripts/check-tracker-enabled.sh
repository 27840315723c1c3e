#!/bin/sh
# check-tracker-enabled.sh NAME LIST: prints y if the tracker is one of the list (wandb,trackio or both), else n.
case $# in
1 | 2) ;;
*)
	echo "error: a tracker and a list of trackers are needed" >&2
	exit 2
	;;
esac
case $1 in
'' | *,*)
	echo "error: one tracker is needed, not '$1'" >&2
	exit 2
	;;
esac
list=$2
case ",$list," in
*,both,*) list=$list,trackio,wandb ;;
esac
case ",$list," in
*",$1,"*) echo y ;;
*) echo n ;;
esac
