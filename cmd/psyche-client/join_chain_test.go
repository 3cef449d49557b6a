package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/record/invite"
)

// TestJoinSignsNothingForForeignPrograms joins by a link to a program of somebody else, which a signature would let
// take all that the account of the key holds: nothing is signed.
func TestJoinSignsNothingForForeignPrograms(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	hostile := identity.FromSeed([32]byte{7}).ID()
	image, err := os.ReadFile("../../chain/sbpf/runtime/testdata/probe.so")
	if err != nil {
		t.Fatal(err)
	}
	ledger := localnet.NewLedger(localnet.Config{Start: time.Now(), Seed: 1})
	if err := ledger.SetProgram([32]byte(hostile), image); err != nil {
		t.Fatal(err)
	}
	node := localnet.NewServer(ledger, localnet.Options{Slot: 10 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = node.Run(ctx) })
	defer running.Wait()
	defer stop()
	var mu sync.Mutex
	var asked strings.Builder
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		asked.Write(body)
		mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		node.Endpoint().ServeHTTP(w, r)
	}))
	defer web.Close()
	time.Sleep(100 * time.Millisecond) // until the program is confirmed
	link := invite.ChainLink{Program: hostile, RunID: "r", Authority: identity.FromSeed([32]byte{8}).ID(), RPC: []string{web.URL}}.String()
	fail(t, exitRefused, "foreign program", "join", link, "--server-timeout", "5s")
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(asked.String(), "sendTransaction") || !strings.Contains(asked.String(), "getAccountInfo") {
		t.Errorf("the node was asked %s", asked.String())
	}
}
