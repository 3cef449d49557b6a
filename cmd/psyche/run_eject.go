package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
)

type runEject struct {
	Client   string `arg:"" name:"key" help:"Key of the client, in base58."`
	Yes      bool   `help:"Eject even if too few clients remain for the run to continue."`
	actFlags `embed:""`
}

// Help returns the text below the command's summary in --help.
func (c *runEject) Help() string {
	return `Removes a waiting client immediately, and a member at the end of the current round. The client cannot
join before the epoch after the next. If fewer clients would remain than an epoch needs to start, the
command does nothing unless --yes is given. The main authority signs.`
}

// errStops rejects an ejection that would stop the run unexpectedly.
var errStops = errors.New("too few clients would remain for the next epoch")

// Run removes a client from a run.
func (c *runEject) Run(ctx context.Context, to console) error {
	client, err := identity.ParseID(c.Client)
	if err != nil {
		return usagef("the client's key: %w; psyche run status shows the keys", err)
	}
	action := coordinator.Eject{Client: coordinator.ClientID(client)}
	err = c.decide(ctx, to, func(s *coordinator.State, _ coordinator.ClientID) (coordinator.Action, error) {
		present, left := remaining(s, action.Client)
		switch least := int(s.Config.InitMinClients); {
		case !present || left >= least: // the run itself refuses an unknown client
		case !c.Yes:
			return nil, fmt.Errorf("%w: %d, but init_min_clients is %d; wait until more clients join, or pass --yes to eject anyway", errStops, left, least)
		default:
			_, _ = fmt.Fprintf(to.err, "psyche: %d clients remain, but init_min_clients is %d: after this epoch, the run waits for more clients\n", left, least)
		}
		return action, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s is ejected from run %s\n", client, c.RunID)
	return err
}

// remaining returns the number of members and pending clients that remain without a client. present is
// true if the client is a member or pending.
func remaining(s *coordinator.State, without coordinator.ClientID) (present bool, left int) {
	count := func(id coordinator.ClientID) {
		if id == without {
			present = true
		} else {
			left++
		}
	}
	for i := range s.Epoch.Clients {
		if s.Epoch.Clients[i].State == coordinator.Healthy {
			count(s.Epoch.Clients[i].ID)
		}
	}
	for i := range s.Pending {
		count(s.Pending[i].ID)
	}
	return present, left
}
