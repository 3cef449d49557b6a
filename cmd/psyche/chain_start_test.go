package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestChainStart starts a chain, queries its slot until the slot advances, and stops the chain.
func TestChainStart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in, out := io.Pipe()
	code := make(chan int, 1)
	program, err := filepath.Abs("../../chain/sbpf/runtime/testdata/probe.so")
	if err != nil {
		t.Fatal(err)
	}
	const id = "Eutyt8ETuT9Zsjj8z6hxdwnzaoQadgMzANr25t3DyMk3"
	go func() {
		code <- run(ctx, []string{"chain", "start", "--listen=127.0.0.1:0", "--slot-ms=5", "--program=" + id + "=" + program}, console{out, io.Discard})
	}()
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, in) }()
	url := strings.Fields(line)[1]
	ask := func(method, params string) string {
		a, err := http.Post(url, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Body.Close() }()
		body, err := io.ReadAll(a.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for ask("getSlot", "[]") == ask("getSlot", `[{"commitment":"processed"}]`) || strings.Contains(ask("getSlot", "[]"), `"result":0,`) {
		time.Sleep(5 * time.Millisecond)
	}
	if got := ask("getAccountInfo", `["`+id+`",{"encoding":"base64"}]`); !strings.Contains(got, `"executable":true`) {
		t.Errorf("the program: %s", got)
	}
	cancel()
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d", got)
	}
}
