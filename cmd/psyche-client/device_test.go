package main

import (
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
)

// TestDeviceRefused asks for devices that are not there, before anything else is done.
func TestDeviceRefused(t *testing.T) {
	requireTorch(t)
	info, err := torch.Loaded()
	if err != nil {
		t.Fatal(err)
	}
	model, data := toy(t)
	train := []string{"train", "--run-id", "x", "--server-addr", "127.0.0.1:1", "--known-servers", data + "/servers"}
	solo := []string{"solo", "--model", model, "--data-path", data, "--seq-len", "16"}
	commands := [][]string{
		train, solo,
		{"evaluate", "--model", model, "--data", data, "--seq-len", "16"},
	}
	for _, command := range commands {
		fail(t, exitUsage, command[0]+", unknown device", append(command, "--device", "gpu")...)
		failNaming(t, exitFailure, "--device cuda:200", append(command, "--device", "cuda:200")...)
	}
	if !info.ForCUDA {
		fail(t, exitFailure, "libtorch without CUDA", append(solo, "--device", "cuda")...)
	}
	failNaming(t, exitFailure, "cuda:201",
		append(solo, "--device", "cuda:199", "--data-parallelism", "3")...)
	fail(t, exitUsage, "unknown type", append(solo, "--compute-dtype", "f16")...)
	fail(t, exitFailure, "f16 on the CPU", "evaluate", "--model", model, "--data", data, "--seq-len", "16", "--device", "cpu", "--compute-dtype", "f16")
}

// TestDeviceCPU computes on the CPU, whatever else there is.
func TestDeviceCPU(t *testing.T) {
	requireTorch(t)
	model, data := toy(t)
	out := succeed(t, "evaluate", "--model", model, "--data", data, "--seq-len", "16", "--device", "cpu")
	if !strings.HasPrefix(out, "loss ") {
		t.Errorf("evaluate printed %q", out)
	}
	out = succeed(t, "solo", "--model", model, "--data-path", data, "--seq-len", "16", "--steps", "1", "--total-batch", "4", "--device", "cpu", "--tensor-parallelism", "2")
	if !strings.Contains(out, "step 1/1") {
		t.Errorf("solo printed %q", out)
	}
}
