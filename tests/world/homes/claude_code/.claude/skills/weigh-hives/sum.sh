#!/bin/sh
awk -F, "{s+=\$2} END {print s}" "$1"
