package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// runOf returns a run's definition as clients see it, with model and data in folders.
func runOf(t *testing.T, model, data string, seqLen int) coordinator.Model {
	t.Helper()
	text := fmt.Sprintf(`run_id = "run"
[config]
init_min_clients = 1
min_clients = 1
warmup_time = 60
rounds_per_epoch = 4
max_round_train_time = 30
round_witness_time = 1
cooldown_time = 30
global_batch_size_start = 6
global_batch_size_end = 6
global_batch_size_warmup_tokens = 0
witness_nodes = 0
verification_percent = 0
total_steps = 8
[model.LLM]
architecture = "HfLlama"
data_type = "Pretraining"
max_seq_len = %d
[model.LLM.data_location.Local]
path = %q
token_size_in_bytes = "TwoBytes"
shuffle = "DontShuffle"
[model.LLM.checkpoint.Local]
path = %q
[model.LLM.lr_schedule.Constant]
base_lr = 1.0e-3
warmup_steps = 0
warmup_init_lr = 0.0
[model.LLM.optimizer.Distro]
compression_decay = 0.9
compression_topk = 8
compression_chunk = 32
quantize_1bit = true
`, seqLen, data, model)
	run, err := config.ParseState("state.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	state, err := run.CoordinatorState(coordinator.ClientID{1})
	if err != nil {
		t.Fatal(err)
	}
	return state.Model
}

// training returns the training of a command line.
func training(f sourceFlags) *trainers {
	return &trainers{command: &trainCommand{memberFlags: memberFlags{sourceFlags: f}}, key: identity.FromSeed([32]byte{1}), logger: slog.New(slog.DiscardHandler)}
}

// TestModelIsTooShort checks that a client refuses a model that cannot process the run's sequences
// before it reports that it is ready. It could not train any round.
func TestModelIsTooShort(t *testing.T) {
	dir := t.TempDir()
	model, data := filepath.Join(dir, "model"), filepath.Join(dir, "data")
	write(t, filepath.Join(model, checkpoint.ConfigFile), []byte(toyConfig))
	write(t, filepath.Join(data, "a.ds"), tokens(strings.Repeat("What a tangled web we weave. ", 60)))
	snapshot := checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(toyConfig)}}}
	f := training(sourceFlags{ModelPath: model, DataPath: data})
	long := runOf(t, "elsewhere", "elsewhere", 33)
	_, loading := f.factory(nil).Build(t.Context(), snapshot, env.Definition{Model: long})
	for when, err := range map[string]error{"joining": f.checkRun(t.Context(), env.Definition{Model: long}), "loading": loading} {
		golden.Message(t, when, err)
	}
	if err := f.checkRun(t.Context(), env.Definition{Model: runOf(t, "elsewhere", "elsewhere", 32)}); err != nil {
		t.Errorf("sequences of the model's maximum length: %v", err)
	}
}

// TestFoldersAreLookedAtBeforeJoining checks that everything that is missing is reported at once.
func TestFoldersAreLookedAtBeforeJoining(t *testing.T) {
	dir := t.TempDir()
	model, data, missing, empty := filepath.Join(dir, "model"), filepath.Join(dir, "data"), filepath.Join(dir, "missing"), t.TempDir()
	write(t, filepath.Join(model, checkpoint.ConfigFile), []byte(toyConfig))
	write(t, filepath.Join(data, "a.ds"), tokens(strings.Repeat("What a tangled web we weave. ", 60)))
	tests := map[string]struct {
		flags sourceFlags
		run   coordinator.Model
		ok    bool
	}{
		"right":              {sourceFlags{ModelPath: model, DataPath: data}, runOf(t, missing, missing, 16), true},
		"nothing given":      {sourceFlags{}, runOf(t, model, data, 16), false},
		"data not given":     {sourceFlags{ModelPath: model}, runOf(t, model, data, 16), false},
		"no model folder":    {sourceFlags{ModelPath: missing, DataPath: data}, runOf(t, model, data, 16), false},
		"empty model folder": {sourceFlags{ModelPath: empty, DataPath: data}, runOf(t, model, data, 16), false},
		"no data folder":     {sourceFlags{ModelPath: model, DataPath: missing}, runOf(t, model, data, 16), false},
		"held-out data":      {sourceFlags{ModelPath: model, DataPath: data, HeldOut: data}, runOf(t, missing, missing, 16), true},
		"no held-out data":   {sourceFlags{ModelPath: model, DataPath: data, HeldOut: missing}, runOf(t, missing, missing, 16), false},
		"trusted, right":     {sourceFlags{AllowLocalPaths: true}, runOf(t, model, data, 16), true},
		"trusted, no model":  {sourceFlags{AllowLocalPaths: true}, runOf(t, missing, data, 16), false},
		"trusted, no data":   {sourceFlags{AllowLocalPaths: true}, runOf(t, model, missing, 16), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := training(test.flags).checkRun(t.Context(), env.Definition{Model: test.run})
			if test.ok && err != nil {
				t.Error(err)
			} else if !test.ok {
				golden.Message(t, name, err)
			}
		})
	}
	handed := runOf(t, missing, data, 16)
	handed.Checkpoint.Kind = coordinator.CheckpointP2P
	if err := training(sourceFlags{DataPath: data}).checkRun(t.Context(), env.Definition{Model: handed}); err != nil {
		t.Errorf("members give the model: %v", err)
	}
}

// TestCheckpointDirIsTried checks that an unusable checkpoint folder is reported with its flag
// before anything else is done.
func TestCheckpointDirIsTried(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "file"), nil)
	write(t, filepath.Join(dir, "saved", ".blobs"), nil)
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c := trainCommand{memberFlags: memberFlags{networkFlags: networkFlags{MaxBlobMemory: 1, MaxBlobDisk: 1, BlobDir: t.TempDir()}}}
	c.CheckpointDir = filepath.Join(file, "saved")
	if _, err := c.claimCheckpointDir(logger); err == nil || !strings.Contains(err.Error(), "--checkpoint-dir") || strings.Contains(err.Error(), "--blob-dir") {
		t.Errorf("below a file: %v", err)
	}
	c.CheckpointDir = filepath.Join(dir, "saved")
	if _, err := c.claimCheckpointDir(logger); err != nil || log.Len() > 0 {
		t.Errorf("a good folder: %v, %s", err, &log)
	}
	if left, _ := filepath.Glob(filepath.Join(c.CheckpointDir, ".probe*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	c.BlobDir = ""
	if _, err := c.openStore(c.CheckpointDir, logger); err == nil || !strings.Contains(err.Error(), "--checkpoint-dir "+c.CheckpointDir) {
		t.Errorf("its .blobs is a file: %v", err)
	}
	c.BlobDir = file
	if _, err := c.openStore(c.CheckpointDir, logger); err == nil || strings.Contains(err.Error(), "--checkpoint-dir") {
		t.Errorf("--blob-dir is a file: %v", err)
	}
	c.CheckpointDir = ""
	if _, err := c.claimCheckpointDir(logger); err != nil || !strings.Contains(log.String(), "--checkpoint-dir") {
		t.Errorf("no folder: %v, %s", err, &log)
	}
}

// TestExitCodesOfTrain checks that scripts can distinguish errors that a retry can fix.
func TestExitCodesOfTrain(t *testing.T) {
	requireTorch(t)
	there := serve(t)
	t.Setenv("PSYCHE_KNOWN_SERVERS", filepath.Join(t.TempDir(), "known_servers"))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	other := identity.FromSeed([identity.SeedSize]byte{9}).ID().String()
	train := func(code int, name, server, run string, more ...string) {
		t.Helper()
		fail(t, code, name, append([]string{"train", "--run-id", run, "--server-addr", server, "--server-timeout", "200ms",
			"--bind-p2p-address", "127.0.0.1", "--log", "none", "--threads", "1"}, more...)...)
	}
	train(exitRefused, "another name", there, "another")
	train(exitConnection, "another key", there, "run", "--server-key", other)
	train(exitRefused, "another hash", there, "run", "--genesis", strings.Repeat("ab", 32))
	train(exitUsage, "short hash", there, "run", "--genesis", "ab")
	train(exitConnection, "no server", "127.0.0.1:1", "run")
	train(exitUsage, "no port", "127.0.0.1", "run")
	train(exitUsage, "empty port", "127.0.0.1:", "run")
	train(exitUsage, "large port", "127.0.0.1:70000", "run")
	train(exitUsage, "short key", there, "run", "--server-key", "0")
	train(exitFailure, "file as folder", there, "run", "--checkpoint-dir", filepath.Join(write(t, filepath.Join(t.TempDir(), "file"), nil), "saved"))
}

// TestHelpAndVersion checks that the help has the exit codes.
func TestHelpAndVersion(t *testing.T) {
	help := strings.Join(strings.Fields(succeed(t, "--help")), " ")
	for _, code := range []string{"0 done", "1 failed", "2 wrong command line", "4 the run", "5 the server", "130 interrupted"} {
		if !strings.Contains(help, code) {
			t.Errorf("no %q in %s", code, help)
		}
	}
	if out := succeed(t, "version"); !strings.HasPrefix(out, "psyche-client ") || strings.Count(out, "\n") != 1 {
		t.Errorf("version printed %q", out)
	}
}

// TestCheckpointDirInUse checks that a second client in a folder is refused before it writes to the
// folder, until the first client has ended.
func TestCheckpointDirInUse(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	c := checkpointFlags{CheckpointDir: filepath.Join(t.TempDir(), "runs", "a")}
	release, err := c.claimCheckpointDir(logger)
	if err != nil {
		t.Fatal(err)
	}
	if !filelock.Supported {
		t.Skip("no locks on this system")
	}
	_, err = c.claimCheckpointDir(logger)
	if !errors.Is(err, errFolderInUse) || !strings.Contains(err.Error(), c.CheckpointDir) || !strings.Contains(err.Error(), "--ephemeral") ||
		runtime.GOOS == "linux" && !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Error(err)
	}
	other := checkpointFlags{CheckpointDir: filepath.Join(filepath.Dir(c.CheckpointDir), "b")}
	releaseOther, err := other.claimCheckpointDir(logger)
	if err != nil {
		t.Errorf("different folder: %v", err)
	}
	if err := errors.Join(release(), releaseOther()); err != nil {
		t.Error(err)
	}
	again, err := c.claimCheckpointDir(logger)
	if err != nil {
		t.Fatal(err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

// TestEventsDirInUse checks that two clients with separate checkpoint folders cannot share the folder
// of their event logs: they would overwrite each other's events.
func TestEventsDirInUse(t *testing.T) {
	if !filelock.Supported {
		t.Skip("no locks on this system")
	}
	dir := filepath.Join(t.TempDir(), "shared")
	first, err := openEventLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := beginEventLog(dir, "evaluation"); !errors.Is(err, event.ErrInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another --events-dir") {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := openEventLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}
