package solana

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// granting is a chain on which keys send instructions about grants.
type granting struct {
	*chain
	program transaction.Program
}

// send sends instructions that a key signs and pays for.
func (g *granting) send(key identity.Key, instructions ...transaction.Instruction) error {
	g.t.Helper()
	g.fund(key)
	o, err := NewOperator(g.options(key))
	if err != nil {
		g.t.Fatal(err)
	}
	defer o.Close()
	return o.Send(g.t.Context(), "grant", otherUnits, instructions...)
}

// grant creates the grant of a key to another key, and returns its address.
func (g *granting) grant(by, to identity.Key, delegates int) transaction.PublicKey {
	g.t.Helper()
	grantor, grantee := transaction.PublicKey(by.ID()), transaction.PublicKey(to.ID())
	size := uint64(layout.GrantSize(delegates))
	made, err := transaction.MakeWithSeed(grantor, grantor, transaction.GrantSeed(grantee), (size+128)*rentPerByte, size, transaction.PublicKey(g.program))
	if err != nil {
		g.t.Fatal(err)
	}
	at, err := g.program.GrantAddress(grantor, grantee)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := g.send(by, append(made, g.program.Grant(at, grantor, grantee))...); err != nil {
		g.t.Fatal(err)
	}
	return at
}

// joins joins a run with a key.
func (g *granting) joins(key identity.Key, run transaction.PublicKey, authorizer transaction.PublicKey) error {
	g.t.Helper()
	g.fund(key)
	o := g.options(key)
	o.Run, o.Authorizer = run, authorizer
	c, err := Dial(g.t.Context(), o)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	await(g.t, c, "a state", func(backend.Update) bool { return true })
	admits, err := c.Admits(g.t.Context(), transaction.PublicKey(key.ID()))
	if err != nil {
		g.t.Fatal(err)
	}
	err = c.Submit(g.t.Context(), coordinator.Join{})
	if admits != (err == nil) {
		g.t.Errorf("the run admits %s: %t, but a Join returns %v", key.ID(), admits, err)
	}
	return err
}

// TestGrants lets the delegates of one grant join a run that started before the grant and a run that
// started after it. It closes the grant, in which the address then belongs to no program.
func TestGrants(t *testing.T) {
	if testing.Short() {
		t.Skip("a chain's time passes as it does")
	}
	g := &granting{chain: newChain(t, 3, 10*time.Millisecond, nil)}
	g.program = transaction.Program(g.chain.program)
	join, grantee, stranger := backendtest.Key(50), backendtest.Key(51), backendtest.Key(99)
	genesis := smallGenesis()
	genesis.Permissioned, genesis.JoinAuthority = true, coordinator.ClientID(join.ID())
	genesis.Config.InitMinClients = 20 // all clients wait
	first := g.create(genesis)
	at := g.grant(join, grantee, 6)
	var delegates []transaction.PublicKey
	for i := range byte(6) {
		delegates = append(delegates, transaction.PublicKey(backendtest.Key(60+i).ID()))
	}
	if err := g.send(grantee, g.program.Delegate(at, transaction.PublicKey(grantee.ID()), false, delegates)); err != nil {
		t.Fatal(err)
	}
	genesis.RunID = "later"
	second := g.create(genesis)
	named := transaction.PublicKey(grantee.ID())
	for _, run := range []transaction.PublicKey{first, second} {
		if err := g.joins(grantee, run, transaction.PublicKey{}); err != nil {
			t.Errorf("the grantee: %v", err)
		}
		for i := range byte(6) {
			authorizer := transaction.PublicKey{} // the client searches the grant
			if i == 5 {
				authorizer = named
			}
			if err := g.joins(backendtest.Key(60+i), run, authorizer); err != nil {
				t.Errorf("delegate %d: %v", i, err)
			}
		}
		for _, authorizer := range []transaction.PublicKey{{}, named, transaction.PublicKey(stranger.ID())} {
			if err := g.joins(stranger, run, authorizer); !errors.Is(err, coordinator.ErrNotAuthorised) {
				t.Errorf("a stranger joins: %v", err)
			}
		}
	}
	g.grant(stranger, stranger, 0) // of another authority
	if err := g.joins(stranger, first, transaction.PublicKey{}); !errors.Is(err, coordinator.ErrNotAuthorised) {
		t.Errorf("a stranger joins by a grant to itself: %v", err)
	}

	by := transaction.PublicKey(join.ID())
	if err := g.send(join, g.program.Free(at, by, by)); err != nil {
		t.Fatal(err)
	}
	c, err := g.join(t.Context(), stranger, first)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, key := range append(slices.Clone(delegates), named) { // any key may do this
		if err := c.Submit(t.Context(), coordinator.Admit{Grant: coordinator.ClientID(at), Client: coordinator.ClientID(key)}); err != nil {
			t.Errorf("release of %s: %v", key, err)
		}
	}
	await(t, c, "the end of all admissions", func(u backend.Update) bool {
		return len(u.State.Authority.Authorizations) == 0 && len(u.State.Pending) == 0
	})
	if err := g.joins(grantee, first, transaction.PublicKey{}); !errors.Is(err, coordinator.ErrNotAuthorised) {
		t.Errorf("the grantee joins without a grant: %v", err)
	}
}

// lieAboutGrants makes a node show these accounts as the grants of every join authority.
func (g *granting) lieAboutGrants(node int, shown ...layout.Grant) {
	accounts := []any{}
	for i := range shown {
		accounts = append(accounts, map[string]any{"pubkey": transaction.PublicKey{byte(i + 1)}.String(), "account": map[string]any{
			"data": []string{base64.StdEncoding.EncodeToString(layout.AppendGrant(nil, &shown[i])), "base64"}, "owner": g.chain.program.String(),
			"lamports": 1, "executable": false, "rentEpoch": 0, "space": layout.GrantSize(shown[i].Room),
		}})
	}
	falsified, err := json.Marshal(accounts)
	if err != nil {
		g.t.Fatal(err)
	}
	g.nodes[node].SetFaults(localnet.Faults{Falsify: func(method string, result json.RawMessage) json.RawMessage {
		if method != "getProgramAccounts" {
			return result
		}
		return falsified
	}})
}

// TestFalseGrants has one of three nodes invent or hide a grant. Neither changes what Admits
// reports, whichever node the client asks first.
func TestFalseGrants(t *testing.T) {
	if testing.Short() {
		t.Skip("a chain's time passes as it does")
	}
	g := &granting{chain: newChain(t, 3, 10*time.Millisecond, nil)}
	g.program = transaction.Program(g.chain.program)
	join, grantee, delegate, stranger := backendtest.Key(50), backendtest.Key(51), backendtest.Key(52), backendtest.Key(99)
	genesis := smallGenesis()
	genesis.Permissioned, genesis.JoinAuthority = true, coordinator.ClientID(join.ID())
	run := g.create(genesis)
	at := g.grant(join, grantee, 1)
	if err := g.send(grantee, g.program.Delegate(at, transaction.PublicKey(grantee.ID()), false, []transaction.PublicKey{transaction.PublicKey(delegate.ID())})); err != nil {
		t.Fatal(err)
	}
	c, err := g.join(t.Context(), stranger, run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	await(t, c, "a state", func(backend.Update) bool { return true })
	invented := layout.Grant{Grantor: genesis.JoinAuthority, Grantee: coordinator.ClientID{1}, Delegates: [][32]byte{coordinator.ClientID(stranger.ID())}, Room: 1}
	for range 3 {
		g.lieAboutGrants(1, invented)
		if admits, err := c.Admits(t.Context(), transaction.PublicKey(stranger.ID())); admits || err != nil {
			t.Errorf("with an invented grant: %t, %v", admits, err)
		}
		g.lieAboutGrants(1)
		if admits, err := c.Admits(t.Context(), transaction.PublicKey(delegate.ID())); !admits || err != nil {
			t.Errorf("with a hidden grant: %t, %v", admits, err)
		}
	}
	for node := range 2 { // the third one knows the grant
		g.nodes[node].SetFaults(localnet.Faults{Dead: true})
	}
	if admits, err := c.Admits(t.Context(), transaction.PublicKey(delegate.ID())); !admits || err != nil {
		t.Errorf("with two dead nodes: %t, %v", admits, err)
	}
}

// TestFalseGrant has a node that shows a grant which the chain does not have. The client pays for an
// Admit once, and then not again for a while.
func TestFalseGrant(t *testing.T) {
	if testing.Short() {
		t.Skip("a chain's time passes as it does")
	}
	g := &granting{chain: newChain(t, 1, 10*time.Millisecond, nil)}
	g.program = transaction.Program(g.chain.program)
	join, stranger := backendtest.Key(50), backendtest.Key(99)
	genesis := smallGenesis()
	genesis.Permissioned, genesis.JoinAuthority = true, coordinator.ClientID(join.ID())
	run := g.create(genesis)
	invented := layout.Grant{Grantor: genesis.JoinAuthority, Grantee: coordinator.ClientID{1}, Delegates: [][32]byte{coordinator.ClientID(stranger.ID())}, Room: 1}
	g.lieAboutGrants(0, invented)
	c, err := g.join(t.Context(), stranger, run)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	await(t, c, "a state", func(backend.Update) bool { return true })
	if err := c.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, program.ErrGrant) {
		t.Errorf("a Join by a false grant: %v", err)
	}
	for range 3 {
		if err := c.Submit(t.Context(), coordinator.Join{}); !errors.Is(err, coordinator.ErrNotAuthorised) {
			t.Errorf("a Join during the pause: %v", err)
		}
	}
	if sent := c.Costs().Sent; sent != 1 {
		t.Errorf("the client pays for %d transactions", sent)
	}
}

// TestPausesOfAdmissions checks that pauses grow with each refusal in a row, up to a limit.
func TestPausesOfAdmissions(t *testing.T) {
	var c Client
	now := time.Unix(1000, 0)
	for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		c.admitted(fmt.Errorf("refused: %w", program.ErrGrant), now)
		if c.mayAdmit(now.Add(want-1)) || !c.mayAdmit(now.Add(want)) {
			t.Errorf("the pause is not %v", want)
		}
	}
	c.admitted(backend.ErrDisconnected, now.Add(time.Hour)) // may have landed
	if !c.mayAdmit(now.Add(time.Hour)) {
		t.Error("a pause after an unknown result")
	}
	c.admitted(nil, now.Add(time.Hour))
	c.admitted(&rpc.TransactionError{}, now.Add(time.Hour))
	if c.mayAdmit(now.Add(time.Hour+29*time.Second)) || !c.mayAdmit(now.Add(time.Hour+30*time.Second)) {
		t.Error("the pause after a success and a refusal is not the first one")
	}
}

// TestPlacesOfGrants checks that a client does not pay for an Admit by a full grant.
func TestPlacesOfGrants(t *testing.T) {
	g := grants{program: transaction.PublicKey{9}, authority: &coordinator.Authority{Join: coordinator.ClientID{1}}}
	key, at := transaction.PublicKey{5}, transaction.PublicKey{8}
	grant := layout.Grant{Grantor: g.authority.Join, Grantee: coordinator.ClientID{4}, Delegates: [][32]byte{key}, Room: 1}
	accounts := []rpc.KeyedAccount{{Key: at, Account: rpc.Account{Owner: g.program, Data: layout.AppendGrant(nil, &grant)}}}
	for n, want := range []error{nil, nil, coordinator.ErrFull} {
		if found, ok, err := g.first(accounts, key); ok != (want == nil) || !errors.Is(err, want) || ok && found != at {
			t.Errorf("after %d admissions: %v, %t, %v", n, found, ok, err)
		}
		admit := coordinator.Admit{Grant: coordinator.ClientID(at), Client: coordinator.ClientID{100 + byte(n)}}
		g.authority.Authorizations = append(g.authority.Authorizations, coordinator.Authorization{Grantee: admit.Grantee(), Delegates: []coordinator.ClientID{admit.Client}})
	}
	second := rpc.KeyedAccount{Key: transaction.PublicKey{7}, Account: accounts[0].Account}
	if found, ok, err := g.first(append(accounts, second), key); !ok || err != nil || found != second.Key {
		t.Errorf("with a second grant: %v, %t, %v", found, ok, err)
	}
	own := coordinator.Admit{Grant: coordinator.ClientID(at), Client: coordinator.ClientID(key)}
	g.authority.Authorizations[2] = coordinator.Authorization{Grantee: own.Grantee(), Delegates: []coordinator.ClientID{own.Client}}
	if _, ok, _ := g.first(accounts, key); ok {
		t.Error("two other keys hold both places") // entries 0 and 1
	}
	g.authority.Authorizations = g.authority.Authorizations[1:]
	if _, ok, _ := g.first(accounts, key); !ok {
		t.Error("the key's own place counts against it")
	}
}
