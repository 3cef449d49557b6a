package main

import (
	"bytes"
	"os"
	"testing"
)

func TestTablesAreCurrent(t *testing.T) {
	want, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../tables_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("tables_gen.go differs from the output of gentables: run go generate ./learn/distro")
	}
}
