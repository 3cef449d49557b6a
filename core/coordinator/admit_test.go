package coordinator

import (
	"slices"
	"testing"
)

// TestAdmit follows a client that a grant admits: as a pending client, as a member, and after the
// end of its admission. Neither the client nor its grantee, a hash, can change the authorization.
func TestAdmit(t *testing.T) {
	genesis := Genesis{RunID: "walk", Host: host, Config: testConfig(), Model: testModel(), Permissioned: true}
	r := newRunOf(t, genesis, "a", "b", "c")
	grant, client := ClientID{1}, clientID("x")
	admit, ended := Admit{Grant: grant, Client: client, Allowed: true}, Admit{Grant: grant, Client: client}
	r.refused("x", Join{}, ErrNotAuthorised)
	r.refused("a", admit, ErrNotAuthorised) // only the client itself may take an authorization of the run
	r.refused("a", ended, ErrDuplicate)
	r.must("x", admit)
	r.refused("x", admit, ErrDuplicate)
	r.refused("x", SetDelegates{Number: r.Authority.Grants, Delegates: []ClientID{clientID("y")}}, ErrNotAuthorised)
	r.refused("host", Authorize{Grantee: client}, ErrDuplicate) // another authorization
	if other := (Admit{Grant: ClientID{2}, Client: client}); other.Grantee() == admit.Grantee() || (Admit{Grant: grant, Client: clientID("y")}).Grantee() == admit.Grantee() {
		t.Error("two admissions share an authorization")
	}
	if got := r.Authority.Granted(grant); !slices.Equal(got, []ClientID{client}) || len(r.Authority.Granted(ClientID{2})) != 0 {
		t.Errorf("the grant admits %v", got)
	}
	r.join("x")
	r.must("b", ended) // any key may end it, once the host verified that the grant does not cover the client
	if r.IsPending(client) || r.Authority.MayJoin(client) || len(r.Authority.Granted(grant)) != 0 {
		t.Error("the client still waits")
	}
	r.must("x", admit)
	r.join("x")
	r.finishEpoch("x")
	r.startTraining()
	if _, ok := r.Member(client); !ok {
		t.Fatal("the client is not a member")
	}
	r.must("host", Authorize{Grantee: admit.Grantee()}) // so may the join authority
	if _, ok := r.Member(client); !ok {
		t.Error("the client left during the epoch")
	}
	r.finishEpoch("y")
	if r.IsPending(client) {
		t.Error("the client was carried over to the next epoch")
	}
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	open := newRun(t, testConfig(), "a", "b", "c")
	open.refused("x", admit, ErrPermissionless)
}
