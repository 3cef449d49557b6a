package programtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// grantRoom is the number of delegates that fit into the grant of a scene.
const grantRoom = 2

func grantAddress(grantor, grantee [32]byte) [32]byte {
	digest := sha256.Sum256(grantee[:])
	return addressWithSeed(grantor, hex.EncodeToString(digest[:])[:32])
}

func grantTo(grantee coordinator.ClientID) []byte {
	return append([]byte{transaction.RunGrant}, grantee[:]...)
}

func delegate(clears bool, added ...coordinator.ClientID) []byte {
	data := []byte{transaction.RunDelegate, 0}
	if clears {
		data[1] = 1
	}
	for _, key := range added {
		data = append(data, key[:]...)
	}
	return data
}

// keys returns n client IDs.
func keys(first, n int) []coordinator.ClientID {
	ids := make([]coordinator.ClientID, n)
	for i := range ids {
		ids[i] = clientID(first + i)
	}
	return ids
}

// granted returns the account that an Admit names, with a grant that agrees with the Admit.
func (d *deployed) granted(body []byte) *runtime.Account {
	action, _ := wire.DecodeAction(body)
	a, _ := action.(coordinator.Admit) // zero if the bytes are malformed
	if !a.Allowed {
		return &runtime.Account{Key: a.Grant, Owner: programID, Lamports: 1, Data: []byte{}}
	}
	g := layout.Grant{Grantor: [32]byte(state(d.run.Data)[authorityAt+32:]), Grantee: clientID(-3), Delegates: [][32]byte{clientID(-4), a.Client}, Room: layout.MaxGrantDelegates}
	return &runtime.Account{Key: a.Grant, Owner: programID, Lamports: 1, Data: layout.AppendGrant(nil, &g)}
}

// newGrants returns a scene whose run is permissioned, in which the grant of "main" to "member" has
// the delegate "other".
func newGrants(t testing.TB) *scene {
	t.Helper()
	s := newSceneOf(t, loadProgram(t), true)
	s.must(grantTo(s.account("member").Key), "grant", "main")
	s.must(delegate(false, s.account("other").Key), "grant", "member")
	return s
}

// admit returns the ACT that admits a key, or ends its admission.
func (s *scene) admit(nonce uint64, key, grant string, allowed bool) []byte {
	return act(nonce, coordinator.Admit{Grant: s.account(grant).Key, Client: s.account(key).Key, Allowed: allowed})
}

// release ends the admission of a key in the name of "spill", a key without any role.
func (s *scene) release(nonce uint64, key string) []byte { return s.admit(nonce, key, "grant", false) }

func (s *scene) mayJoin(key string) bool {
	s.t.Helper()
	x := s.read("run")
	return x.State.Authority.MayJoin(s.account(key).Key)
}

// free ends the grant as the chain does: an account without lamports no longer exists when the
// transaction ends.
func (s *scene) free() {
	s.t.Helper()
	s.must([]byte{transaction.RunFree}, "grant", "main", "spill")
	a := s.account("grant")
	a.Owner, a.Data = [32]byte{}, nil
}

// TestGrant plays a grant from its creation to the return of its rent.
func TestGrant(t *testing.T) {
	s := newGrants(t)
	want := layout.Grant{Grantor: s.account("main").Key, Grantee: s.account("member").Key, Delegates: [][32]byte{s.account("other").Key}, Room: grantRoom}
	check := func() {
		t.Helper()
		if got := s.account("grant").Data; !bytes.Equal(got, layout.AppendGrant(nil, &want)) {
			t.Errorf("the grant has the bytes %x", got)
		}
		got, err := layout.ReadGrant(s.account("grant").Data)
		if err != nil || got.Grantor != want.Grantor || got.Grantee != want.Grantee || !slices.Equal(got.Delegates, want.Delegates) || got.Room != want.Room {
			t.Errorf("the grant reads as %+v, %v", got, err)
		}
	}
	check()
	s.must(delegate(false, s.account("other").Key, clientID(8), clientID(8)), "grant", "member") // repeated keys are added once
	want.Delegates = append(want.Delegates, clientID(8))
	check()
	s.refused(coordinator.ErrFull, delegate(false, clientID(9)), "grant", "member")
	s.must(delegate(true), "grant", "member")
	want.Delegates = nil
	check()
	s.must(delegate(true, s.account("other").Key), "grant", "member")
	want.Delegates = [][32]byte{s.account("other").Key}
	check()

	s.must(s.admit(1, "member", "grant", true), "run", "member", "grant")
	s.must(s.admit(1, "other", "grant", true), "run", "other", "grant")
	s.must(act(2, coordinator.Join{}), "run", "member")
	s.must(act(2, coordinator.Join{}), "run", "other")
	if x := s.read("run"); len(x.State.Pending) != 2 || len(x.State.Authority.Authorizations) != 2 {
		t.Errorf("got %s; want len(x.State.Pending) == 2 and len(x.State.Authority.Authorizations) == 2", x.State.String())
	}
	before := s.account("spill").Lamports
	s.free()
	if got := s.account("spill").Lamports - before; got != 2_000_000 {
		t.Errorf("%d lamports come back", got)
	}
	s.must(s.release(1, "other"), "run", "spill", "grant")
	s.must(s.release(2, "member"), "run", "spill", "grant")
	if x := s.read("run"); len(x.State.Pending) != 0 || len(x.State.Authority.Authorizations) != 0 {
		t.Errorf("still admitted:\n%s", x.State.String())
	}
}

// TestRefusalsOfGrants checks every refusal of the instructions that change grants.
func TestRefusalsOfGrants(t *testing.T) {
	on, to := []string{"grant", "main"}, grantTo(clientID(1))
	created := func(s *scene) { s.must(to, on...) }
	sized := func(n int) func(*scene) { return func(s *scene) { s.resize("grant", n) } }
	free := []byte{transaction.RunFree}
	testRefusals(t, []refusal{
		{"to nobody", program.ErrInvalidInstructionData, nil, []byte{transaction.RunGrant}, on},
		{"to a cut key", program.ErrInvalidInstructionData, nil, to[:32], on},
		{"with more", program.ErrInvalidInstructionData, nil, append(slices.Clone(to), 0), on},
		{"to another key", program.ErrInvalidSeeds, nil, grantTo(clientID(2)), on},
		{"by another key", program.ErrInvalidSeeds, nil, to, []string{"grant", "other"}},
		{"at another address", program.ErrInvalidSeeds, func(s *scene) { s.account("grant").Key[0] ^= 1 }, to, on},
		{"twice", program.ErrAccountAlreadyInitialized, created, to, on},
		{"over a freed one", program.ErrAccountAlreadyInitialized, func(s *scene) { created(s); s.must(free, "grant", "main", "main") }, to, on},
		{"over the same everywhere", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("grant", 0, bytes.Repeat([]byte{1}, layout.GrantSize(grantRoom))...) }, to, on},
		{"over other data", program.ErrAccountAlreadyInitialized, func(s *scene) { s.poke("grant", layout.GrantSize(grantRoom)-1, 1) }, to, on},
		{"without space", program.ErrInvalidAccountData, sized(layout.GrantSize(0) - 1), to, on},
		{"that ends after the grantor", program.ErrInvalidAccountData, sized(48), to, on},
		{"with a part of a key", program.ErrInvalidAccountData, sized(layout.GrantSize(1) + 8), to, on},
		{"too large", program.ErrInvalidAccountData, sized(layout.GrantSize(layout.MaxGrantDelegates + 1)), to, on},
		{"in a run", program.ErrInvalidAccountData, nil, to, []string{"run", "main"}},

		{"delegates of no grant", program.ErrUninitializedAccount, nil, delegate(true), []string{"grant", "member"}},
		{"delegates by another", program.ErrIncorrectAuthority, created, delegate(true), []string{"grant", "other"}},
		{"delegates by the grantor", program.ErrIncorrectAuthority, created, delegate(true), on},
		{"delegates of a run", program.ErrInvalidAccountData, nil, delegate(true), []string{"run", "main"}},
		{"delegates in a cut grant", program.ErrInvalidAccountData, func(s *scene) { created(s); sized(79)(s) }, delegate(true), []string{"grant", "member"}},
		{"delegates in a newer grant", program.ErrOtherVersion, func(s *scene) { created(s); s.poke("grant", 8, 2) }, delegate(true), []string{"grant", "member"}},
		{"delegates without a flag", program.ErrInvalidInstructionData, created, []byte{transaction.RunDelegate}, []string{"grant", "member"}},
		{"delegates with another flag", program.ErrInvalidInstructionData, created, []byte{transaction.RunDelegate, 2}, []string{"grant", "member"}},
		{"a cut delegate", program.ErrInvalidInstructionData, created, delegate(false, clientID(3))[:33], []string{"grant", "member"}},
		{"too many delegates", coordinator.ErrFull, created, delegate(false, keys(10, grantRoom+1)...), []string{"grant", "member"}},

		{"freed by the grantee", program.ErrIncorrectAuthority, created, free, []string{"grant", "member", "spill"}},
		{"freed by another", program.ErrIncorrectAuthority, created, free, []string{"grant", "other", "spill"}},
		{"freed before its creation", program.ErrUninitializedAccount, nil, free, []string{"grant", "main", "spill"}},
		{"migrated", coordinator.ErrWrongState, created, []byte{transaction.RunMigrate, 2, 0, 0, 0}, on},
		{"written", program.ErrInvalidAccountData, created, write(0, []byte{1}), on},
		{"initialized as a run", program.ErrInvalidAccountData, created, []byte{transaction.RunInit}, on},
		{"announced", program.ErrInvalidAccountData, func(s *scene) { created(s); sized(layout.PeerSize)(s) }, announcement("a"), []string{"grant", "member", "run"}},
		{"forgotten", program.ErrInvalidAccountData, created, []byte{transaction.RunForget}, []string{"grant", "member", "spill"}},
		{"used as a run", program.ErrInvalidAccountData, created, act(1, coordinator.Join{}), []string{"grant", "member"}},
	})
}

// forger is an adversary that wants a key in a run whose join authority has not authorized it. It
// controls the keys "other" and "spill", can create accounts of any content under its own programs,
// grants as its own join authority, and sends any instruction.
type forger struct {
	name   string
	want   error
	change func(*scene)
	data   func(*scene) []byte
	on     []string
}

// TestForgedGrants tries each way in which a forger can make up or misuse a grant.
func TestForgedGrants(t *testing.T) {
	other := []string{"run", "other", "grant"}
	asks := func(s *scene) []byte { return s.admit(9, "other", "grant", true) }
	clears := func(s *scene) { s.must(delegate(true), "grant", "member") }
	freed := func(s *scene) { s.free() }
	for _, f := range []forger{
		{"control: a delegate", nil, nil, asks, other},
		{"wrong owner", program.ErrGrant, func(s *scene) { s.account("grant").Owner = clientID(7) }, asks, other},
		{"owned by the system", program.ErrGrant, func(s *scene) { s.account("grant").Owner = [32]byte{} }, asks, other},
		{"no account", program.ErrGrant, freed, asks, other},
		{"not a delegate", program.ErrGrant, clears, asks, other},
		{"of another authority", program.ErrGrant, ownGrant, func(s *scene) []byte { return s.admit(9, "other", "own", true) }, []string{"run", "other", "own"}},
		{"another account than named", program.ErrInvalidArgument, ownGrant, asks, []string{"run", "other", "own"}},
		{"named, another authority's given", program.ErrInvalidArgument, ownGrant, func(s *scene) []byte { return s.admit(9, "other", "own", true) }, other},
		{"a run", program.ErrGrant, nil, func(s *scene) []byte { return s.admit(9, "other", "fresh", true) }, []string{"run", "other", "fresh"}},
		{"an account of zeros", program.ErrGrant, nil, func(s *scene) []byte { return s.admit(9, "other", "empty", true) }, []string{"run", "other", "empty"}},
		{"a peer with the same bytes", program.ErrGrant, func(s *scene) { s.poke("grant", 0, []byte(layout.PeerMagic)...) }, asks, other},
		{"a freed grant that is funded again", program.ErrGrant, func(s *scene) {
			s.must([]byte{transaction.RunFree}, "grant", "main", "main")
			s.account("grant").Lamports = 1
		}, asks, other},
		{"a newer version", program.ErrGrant, func(s *scene) { s.poke("grant", 8, 2) }, asks, other},
		{"no data", program.ErrGrant, func(s *scene) { s.resize("grant", 0) }, asks, other},
		{"cut in the head", program.ErrGrant, func(s *scene) { s.resize("grant", 79) }, asks, other},
		{"cut before the delegate", program.ErrGrant, func(s *scene) { s.resize("grant", 80) }, asks, other},
		{"cut in the delegate", program.ErrGrant, func(s *scene) { s.resize("grant", 80+31) }, asks, other},
		{"more delegates than fit", program.ErrGrant, func(s *scene) { s.poke("grant", 12, grantRoom+1) }, asks, other},
		{"a number of delegates that overflows", program.ErrGrant, func(s *scene) { s.poke("grant", 12, 0xff, 0xff, 0xff, 0xff) }, asks, other},
		{"beyond the last delegate", program.ErrGrant, func(s *scene) { s.poke("grant", 12, 0) }, asks, other},
		{"in another key's name", coordinator.ErrNotAuthorised, nil, func(s *scene) []byte { return s.admit(9, "member", "grant", true) }, other},
		{"twice", coordinator.ErrDuplicate, func(s *scene) { s.must(asks(s), other...) }, func(s *scene) []byte { return s.admit(10, "other", "grant", true) }, other},
		{"without the grant", program.ErrNotEnoughAccountKeys, nil, asks, []string{"run", "other"}},
		{"the run as its own grant", program.ErrInvalidArgument, nil, asks, []string{"run", "other", "run"}},
		{"the signer as the grant", program.ErrInvalidArgument, nil, asks, []string{"run", "other", "other"}},
		{"cut", coordinator.ErrMalformed, nil, func(s *scene) []byte { b := asks(s); return b[:len(b)-1] }, other},
		{"with more", coordinator.ErrMalformed, nil, func(s *scene) []byte { return append(asks(s), 0) }, other},
		{"allowed 2", coordinator.ErrMalformed, nil, func(s *scene) []byte { b := asks(s); b[len(b)-1] = 2; return b }, other},
		{"a nonce of zero", coordinator.ErrStaleNonce, nil, func(s *scene) []byte { return s.admit(0, "other", "grant", true) }, other},
		{"joins without admission", coordinator.ErrNotAuthorised, nil, func(*scene) []byte { return act(9, coordinator.Join{}) }, other[:2]},

		{"ends an admission that holds", program.ErrGrant, func(s *scene) { s.must(asks(s), other...) }, func(s *scene) []byte { return s.release(9, "other") }, []string{"run", "spill", "grant"}},
		{"ends it by another account", program.ErrInvalidArgument, func(s *scene) { ownGrant(s); s.must(asks(s), other...) }, func(s *scene) []byte { return s.release(9, "other") }, []string{"run", "spill", "own"}},
		{"ends it in another's name", coordinator.ErrDuplicate, func(s *scene) { ownGrant(s); s.must(asks(s), other...) }, func(s *scene) []byte { return s.admit(9, "other", "own", false) }, []string{"run", "spill", "own"}},
		{"ends what never was", coordinator.ErrDuplicate, freed, func(s *scene) []byte { return s.release(9, "other") }, []string{"run", "spill", "grant"}},
		{"ends an authorization of this run", coordinator.ErrDuplicate, func(s *scene) {
			clears(s)
			s.must(act(9, coordinator.Authorize{Grantee: s.account("other").Key, Allowed: true}), "run", "main")
		}, func(s *scene) []byte { return s.release(9, "other") }, []string{"run", "spill", "grant"}},
		{"names delegates of the run", coordinator.ErrNotAuthorised, func(s *scene) { s.must(asks(s), other...) }, func(*scene) []byte {
			return act(10, coordinator.SetDelegates{Number: 1, Delegates: keys(50, 1)})
		}, other[:2]},
		{"names delegates of the grant", program.ErrIncorrectAuthority, nil, func(s *scene) []byte { return delegate(false, s.account("spill").Key) }, []string{"grant", "other"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			s := newGrants(t)
			if f.change != nil {
				f.change(s)
			}
			if f.want == nil {
				s.must(f.data(s), f.on...)
				return
			}
			s.refused(f.want, f.data(s), f.on...)
		})
	}
	s := newScene(t, loadProgram(t))
	s.must(grantTo(s.account("member").Key), "grant", "main")
	s.refused(coordinator.ErrPermissionless, s.admit(1, "member", "grant", true), "run", "member", "grant")
}

// TestRefusalsOfZeroKey cuts a grant after the grantor. The program must not take the zeros behind it
// for the grantee.
func TestRefusalsOfZeroKey(t *testing.T) {
	s := newGrants(t)
	s.resize("grant", 48)
	s.account("other").Key = [32]byte{}
	s.refused(program.ErrGrant, s.admit(9, "other", "grant", true), "run", "other", "grant")
}

// ownGrant adds the account "own": a grant of the forger's key "other" to itself.
func ownGrant(s *scene) {
	key := s.account("other").Key
	s.accounts["own"] = &runtime.Account{Key: grantAddress(key, key), Owner: programID, Lamports: 1, Data: make([]byte, layout.GrantSize(1)), Writable: true}
	s.must(grantTo(key), "own", "other")
}

// TestRevokedDuringJoin revokes a delegate, or its whole grant, before, between and after its
// admission and its Join, also if the grantor closes the grant and creates it again.
func TestRevokedDuringJoin(t *testing.T) {
	join := act(20, coordinator.Join{})
	revokes := map[string]func(*scene){
		"delegate removed": func(s *scene) { s.must(delegate(true), "grant", "member") },
		"grant closed":     (*scene).free,
		"created again": func(s *scene) {
			s.free()
			a := s.account("grant")
			a.Owner, a.Lamports, a.Data = programID, 1, make([]byte, layout.GrantSize(grantRoom))
			s.must(grantTo(s.account("member").Key), "grant", "main")
		},
	}
	for name, revoke := range revokes {
		t.Run(name, func(t *testing.T) {
			ask := func(s *scene) []byte { return s.admit(9, "other", "grant", true) }
			s := newGrants(t) // before the admission
			revoke(s)
			s.refused(program.ErrGrant, ask(s), "run", "other", "grant")
			s.refused(coordinator.ErrNotAuthorised, join, "run", "other")

			s = newGrants(t) // after the admission: valid until its end, which any key may send
			s.must(ask(s), "run", "other", "grant")
			revoke(s)
			s.must(s.release(1, "other"), "run", "spill", "grant")
			s.refused(coordinator.ErrNotAuthorised, join, "run", "other")
			s.refused(program.ErrGrant, s.admit(21, "other", "grant", true), "run", "other", "grant")

			s = newGrants(t) // after the Join: the client loses its place
			s.must(ask(s), "run", "other", "grant")
			s.must(join, "run", "other")
			revoke(s)
			if !s.mayJoin("other") {
				t.Error("the admission ends without a release")
			}
			s.must(s.release(1, "other"), "run", "spill", "grant")
			if x := s.read("run"); len(x.State.Pending) > 0 || s.mayJoin("other") {
				t.Errorf("still admitted:\n%s", x.State.String())
			}
		})
	}
	s := newGrants(t) // the grantor's new grant covers the same key: its admission continues
	s.must(s.admit(9, "member", "grant", true), "run", "member", "grant")
	revokes["created again"](s)
	s.refused(program.ErrGrant, s.release(1, "member"), "run", "spill", "grant")
	if !s.mayJoin("member") {
		t.Error("the admission of the grantee ended")
	}
}

// TestFullOfAdmissions fills a run with the delegates of one grant. The join authority then ends
// one of them, which makes room for another.
func TestFullOfAdmissions(t *testing.T) {
	if testing.Short() {
		t.Skip("admits hundreds of clients")
	}
	s := newSceneOf(t, loadProgram(t), true)
	s.resize("grant", layout.GrantSize(layout.MaxGrantDelegates))
	s.must(grantTo(s.account("member").Key), "grant", "main")
	for i := 0; i < layout.MaxGrantDelegates; i += 16 {
		s.must(delegate(false, keys(1000+i, 16)...), "grant", "member")
	}
	s.refused(coordinator.ErrFull, delegate(false, clientID(9)), "grant", "member")
	var units uint64
	for i := range layout.MaxGrantDelegates {
		s.accounts["delegate"] = &runtime.Account{Key: clientID(1000 + i), Lamports: 1, Signer: true}
		units = max(units, s.must(s.admit(1, "delegate", "grant", true), "run", "delegate", "grant").Units)
		units = max(units, s.must(act(2, coordinator.Join{}), "run", "delegate").Units)
	}
	t.Logf("at most %d units", units)
	if units > unitLimit {
		t.Errorf("%d units, want at most %d", units, unitLimit)
	}
	s.refused(coordinator.ErrFull, s.admit(1, "member", "grant", true), "run", "member", "grant")
	first := coordinator.Admit{Grant: s.account("grant").Key, Client: clientID(1000)}
	s.must(act(1, coordinator.Authorize{Grantee: first.Grantee()}), "run", "main")
	s.must(s.admit(1, "member", "grant", true), "run", "member", "grant")
	if x := s.read("run"); x.State.Authority.MayJoin(clientID(1000)) || len(x.State.Pending) != layout.MaxGrantDelegates-1 {
		t.Errorf("%d clients wait", len(x.State.Pending))
	}
}
