package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/invite"
)

// TestModelOfALink checks that a link without a model is an error, and that a user's own model is used if
// the run does not answer.
func TestModelOfALink(t *testing.T) {
	requireTorch(t)
	state := t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	fail(t, exitUsage, "no model", "generate", "--prompt", "a")
	fail(t, exitUsage, "link and model", "generate", testLink().String(), "--model", "m", "--prompt", "a")
	fail(t, exitUsage, "not a link", "generate", "Once upon a time", "--prompt", "a")

	s := servertest.Start(t, server.Options{Listen: "127.0.0.1:0", Runs: []server.Genesis{backendtest.Genesis("a run", 3)}, WithdrawGrace: -1})
	c, err := tcp.Dial(t.Context(), tcp.Options{Addr: s.Address, RunID: "a run", Key: identity.FromSeed([32]byte{9}), Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Updates()
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	link := invite.Link{Host: host, Port: uint16(number), RunID: "a run", Key: c.Host(), Run: c.Run()}
	_ = c.Close()
	fail(t, exitFailure, "no model yet", "generate", link.String(), "--prompt", "a")

	s.Stop()
	model, _ := toy(t)
	snapshot, err := checkpoint.ReadDir(model)
	if err != nil {
		t.Fatal(err)
	}
	snapshot.Step = 4
	own := filepath.Join(kept(filepath.Join(state, "psyche")).run("a run", link.Run), "a_run-step4")
	facts := checkpoint.Facts{RunID: "a run", Step: 4, Digest: fmt.Sprintf("%x", snapshot.Manifest().Digest())}
	if err := checkpoint.WriteDir(own, snapshot, facts.Extra()); err != nil {
		t.Fatal(err)
	}
	if out := succeed(t, "generate", link.String(), "--prompt", "What", "--max-tokens", "3"); !strings.HasPrefix(out, "What") {
		t.Errorf("printed %q", out)
	}
}

// TestGenerateComparesTheDigest checks that a model which does not match the digest in its folder is
// refused.
func TestGenerateComparesTheDigest(t *testing.T) {
	requireTorch(t)
	model, _ := toy(t)
	facts := checkpoint.Facts{RunID: "run", Digest: fmt.Sprintf("%x", digest(t, model))}
	write(t, filepath.Join(model, checkpoint.FactsFile), facts.Encode())
	succeed(t, "generate", "--model", model, "--prompt", "What", "--max-tokens", "1")
	path := filepath.Join(model, "model.safetensors")
	weights, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	weights[len(weights)-1] ^= 1
	write(t, path, weights)
	failNaming(t, exitFailure, checkpoint.FactsFile, "generate", "--model", model, "--prompt", "What")
	failNaming(t, exitFailure, checkpoint.FactsFile, "serve-model", "--model", model)
}
