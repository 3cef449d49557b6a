package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/invite"
)

// TestServerInvites checks that the invite link of each run is printed once, as soon as all of its
// parts are known, in whatever order they become known. A finished run has no link.
func TestServerInvites(t *testing.T) {
	key := identity.FromSeed([32]byte{1}).ID()
	at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4000}
	for public, want := range map[string]string{"": "192.0.2.7:4000", "run.example": "run.example:4000", "run.example:5000": "run.example:5000"} {
		var log bytes.Buffer
		o := server.Options{Hooks: server.Hooks{Ready: func(net.Addr) {}, OnState: func(*coordinator.State) {}}}
		if err := (serverRun{PublicAddr: public}).invite(&o, slog.New(slog.NewTextHandler(&log, nil)), nil); err != nil {
			t.Fatal(err)
		}
		see := func(id string, in coordinator.RunState) {
			o.OnState(&coordinator.State{RunID: id, Host: coordinator.ClientID(key), RunState: in})
		}
		o.OnRun("early", [32]byte{1})
		o.OnRun("over", [32]byte{2})
		see("early", coordinator.WaitingForMembers)
		see("over", coordinator.Finished)
		if log.Len() > 0 {
			t.Errorf("invited before the server listens: %s", &log)
		}
		o.Ready(at)
		o.OnRun("late", [32]byte{3})
		see("late", coordinator.WaitingForMembers)
		see("late", coordinator.Warmup)
		text := log.String()
		if strings.Count(text, "psyche-client join") != 2 || strings.Contains(text, "over") || strings.Contains(text, "--public-addr") {
			t.Errorf("got %s; want strings.Count(text, \"psyche-client join\") == 2 and no \"over\" in it and no \"--public-addr\" in it", text)
		}
		for id, hash := range map[string]byte{"early": 1, "late": 3} {
			_, link, _ := strings.Cut(text, "'psyche://"+want+"/"+id)
			link, _, _ = strings.Cut("psyche://"+want+"/"+id+link, "'")
			if got, err := invite.Parse(link); err != nil || got.Key != key || got.Run != [32]byte{hash} || got.Addr() != want {
				t.Errorf("%s: got %+v, %v; want nil error and got.Key == key and got.Run == [32]byte{hash} and got.Addr() == want", id, got, err)
			}
		}
	}
	golden.Message(t, "address of all interfaces", (serverRun{PublicAddr: "0.0.0.0"}).invite(&server.Options{}, nil, nil))
}

// TestOwnAddress checks that the address that other machines most likely reach is preferred.
func TestOwnAddress(t *testing.T) {
	list := func(texts ...string) func() ([]net.Addr, error) {
		var all []net.Addr
		for _, text := range texts {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		return func() ([]net.Addr, error) { return all, nil }
	}
	for want, from := range map[string]func() ([]net.Addr, error){
		"127.0.0.1":            func() ([]net.Addr, error) { return nil, errors.New("none") },
		"10.1.2.3":             list("127.0.0.1/8", "::1/128", "fe80::1/64", "fd00::1/64", "10.1.2.3/8", "172.17.0.1/16"),
		"2606:4700:4700::1111": list("10.1.2.3/8", "2606:4700:4700::1111/64"),
		"1.1.1.1":              list("10.1.2.3/8", "2606:4700:4700::1111/64", "1.1.1.1/24"),
	} {
		if got := ownAddress(from); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestPrintQR checks that the code has no colours if the output is not a terminal, and is complete.
func TestPrintQR(t *testing.T) {
	var to strings.Builder
	if err := printQR(&to, "psyche://host.example:39405/r"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(to.String(), "\n")
	if strings.Contains(to.String(), "\x1b") || len(lines) < 10 || len(lines) != utf8.RuneCountInString(lines[0])/2+2 {
		t.Errorf("%d lines: %q", len(lines), to.String())
	}
}
