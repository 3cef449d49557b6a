package main

import (
	"io"
)

func printTables(w io.Writer, r rows, done map[string]measurement) {}
