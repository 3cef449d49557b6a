// Package testbed runs training networks for tests and measurements: servers, chains and clients as
// separate processes, on loopback or behind links.
package testbed

import (
	"context"
	"errors"
	"time"

	"github.com/psyche-go/psyche/base/child"
)

// Place is the location of a process, with its address for other processes.
type Place struct {
	Address string
	Wrap    func(program string, args ...string) (string, []string) // nil: here
	Env     []string                                                // of its processes, in addition to this process's environment
	Sent    func() int64                                            // bytes sent so far, including headers; nil: not counted
}

// Link configures the outgoing packets of a place. The zero value is a perfect link.
type Link struct {
	Delay        time.Duration // of every packet, one way
	LossPerMille int           // lost packets per thousand
	Rate         int64         // bit/s; 0: unlimited
}

// ErrNoLinks means that this machine cannot make links.
var ErrNoLinks = errors.New("cannot create links with a delay")

// Loopback returns places that are all on this machine's loopback device.
func Loopback(count int) []Place {
	places := make([]Place, count)
	for i := range places {
		places[i].Address = "127.0.0.1"
	}
	return places
}

// Start starts a program in a place. The end of ctx ends it.
func Start(ctx context.Context, p Place, name, log, program string, args ...string) (*child.Process, error) {
	one := &child.Process{Name: name, Log: log, Program: program, Args: args, Env: p.Env, Wrap: p.Wrap}
	return one, one.StartUntil(ctx)
}

// Spin uses a processor until ctx ends.
func Spin(ctx context.Context) {
	for n := 0; ; n++ {
		if n%1_000_000 == 0 && ctx.Err() != nil {
			return
		}
	}
}
