package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/psyche-go/psyche/proof/testbed"
)

// rows are the systems to compare, and the links that they run over.
type rows struct {
	Model  string   `toml:"model"` // config.json of the model; empty: the quickstart's
	System []system `toml:"system"`
	Link   []link   `toml:"link"`
}

// system is a training system: a run of this project, peers.py, or hivemind_peer.py.
type system struct {
	Name  string         `toml:"name"`
	State string         `toml:"state"` // Psyche: path of its state.toml
	Set   map[string]any `toml:"set"`   // Psyche: keys of that file with different values

	Torch    string   `toml:"torch"`    // of peers.py: its --system, or hivemind
	Batch    int      `toml:"batch"`    // with torch: sequences of an exchange, over all members
	Flags    []string `toml:"flags"`    // with torch
	OnLinks  []string `toml:"on_links"` // with torch: additional flags for timing exchanges
	Torchrun bool     `toml:"torchrun"` // of peers.py: torchrun starts and restarts it

	Exchanges int    `toml:"exchanges"` // of the whole run
	Measure   int    `toml:"measure"`   // exchanges between two measurements of the held-out loss
	Only      string `toml:"only"`      // curve or kill: measure only this; empty: everything
}

// title returns the system's name in tables and pictures, where "ours" is Psyche. Names of logs
// keep "ours".
func (s system) title() string {
	if rest, found := strings.CutPrefix(s.Name, "ours,"); found {
		return "Psyche," + rest
	}
	return s.Name
}

// measured reports whether something is measured for a system.
func (s system) measured(thing string) bool { return s.Only == "" || s.Only == thing }

// libraries returns the Python libraries of a system.
func (s system) libraries() []string {
	if s.Torch == hivemind {
		return []string{"torch", "numpy", "hivemind"}
	}
	return []string{"torch", "numpy"}
}

const (
	curveOnly = "curve"
	killOnly  = "kill"
	hivemind  = "hivemind"
)

// link configures every member's outgoing packets.
type link struct {
	Name  string           `toml:"name"`
	Delay testbed.Duration `toml:"delay"` // one way
	Mbits int64            `toml:"mbits"` // Mbit/s; 0: unlimited
	Loss  int              `toml:"loss"`  // lost packets per thousand
}

func (l link) loopback() bool { return l.Delay == 0 && l.Mbits == 0 && l.Loss == 0 }

const maxExchanges = 10_000

func (s system) check() error {
	switch {
	case s.Name == "":
		return errors.New("name is missing")
	case (s.State == "") == (s.Torch == ""):
		return errors.New("set either state or torch, and only one of them")
	case s.Only != "" && s.Only != curveOnly && s.Only != killOnly:
		return fmt.Errorf("only is %q, want curve, kill or empty", s.Only)
	case s.Torchrun && (s.Torch == "" || s.Torch == hivemind || s.Only != killOnly):
		return errors.New(`torchrun requires a system of peers.py and only = "kill"`)
	case s.Torch != "" && len(s.Set) > 0:
		return errors.New("set requires a system with a state")
	case s.Torch != "" && (s.Batch < members || s.Batch%members != 0):
		return fmt.Errorf("batch is %d, want a multiple of %d", s.Batch, members)
	case s.Exchanges < 4 || s.Exchanges > maxExchanges:
		return fmt.Errorf("exchanges is %d, want 4 to %d", s.Exchanges, maxExchanges)
	case s.Measure < 1:
		return fmt.Errorf("measure is %d, want at least 1", s.Measure)
	}
	return nil
}

func (l link) check() error {
	switch {
	case l.Name == "":
		return errors.New("name is missing")
	case l.Delay < 0 || l.Delay > testbed.Duration(time.Second):
		return fmt.Errorf("delay is %s, want 0s to 1s", time.Duration(l.Delay))
	case l.Mbits < 0 || l.Mbits > 100_000:
		return fmt.Errorf("mbits is %d, want at most 100000", l.Mbits)
	case l.Loss < 0 || l.Loss > 500:
		return fmt.Errorf("loss is %d per thousand, want at most 500", l.Loss)
	}
	return nil
}

func readRows(path string) (r rows, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read rows: %w", err)
	}
	if err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&r); err != nil {
		return r, fmt.Errorf("read rows: %s: %w", path, err)
	}
	for i, s := range r.System {
		if err := s.check(); err != nil {
			return r, fmt.Errorf("read rows: %s: system %d, %q: %w", path, i+1, s.Name, err)
		}
	}
	for i, l := range r.Link {
		if err := l.check(); err != nil {
			return r, fmt.Errorf("read rows: %s: link %d, %q: %w", path, i+1, l.Name, err)
		}
	}
	return r, nil
}

// slug converts a name to a part of a file name.
func slug(name string) string {
	return strings.Trim(strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "-"), "-")
}
