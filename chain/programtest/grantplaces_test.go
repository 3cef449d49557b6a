package programtest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/core/coordinator"
)

// rotate makes the grantee name a key as its only delegate, and returns the name of the key's account
// and the result of its admission.
func (s *scene) rotate(n int) (string, error) {
	s.t.Helper()
	name := fmt.Sprintf("rotated %d", n)
	s.accounts[name] = &runtime.Account{Key: clientID(5000 + n), Lamports: 1, Signer: true}
	s.must(delegate(true, s.account(name).Key), "grant", "member")
	_, err := s.invoke(s.admit(1, name, "grant", true), "run", name, "grant")
	return name, err
}

// TestGranteeReplacesDelegates has a hostile grantee that replaces its delegate after each admission.
// A run must not admit more of its keys than the grant has places, which the grantor chose.
func TestGranteeReplacesDelegates(t *testing.T) {
	s := newGrants(t)
	var admitted []string
	for n := range 8 {
		name, err := s.rotate(n)
		if err == nil {
			admitted = append(admitted, name)
		}
	}
	if len(admitted) != grantRoom+1 {
		t.Fatalf("a grant with space for %d delegates admits %d keys", grantRoom, len(admitted))
	}
	last := "rotated 7" // any key can release a key that is no longer a delegate, and so make room
	s.refused(coordinator.ErrFull, s.admit(2, last, "grant", true), "run", last, "grant")
	s.must(s.release(1, admitted[0]), "run", "spill", "grant")
	s.must(s.admit(2, last, "grant", true), "run", last, "grant")
	s.refused(coordinator.ErrDuplicate, s.admit(3, last, "grant", true), "run", last, "grant")

	// The places of one grant do not depend on another grant, nor on authorizations of the run.
	s.accounts["second"] = &runtime.Account{Key: grantAddress(s.account("main").Key, s.account("spill").Key), Owner: programID, Lamports: 1, Data: make([]byte, layout.GrantSize(1)), Writable: true}
	s.must(grantTo(s.account("spill").Key), "second", "main")
	s.must(delegate(false, s.account("other").Key), "second", "spill")
	s.must(act(1, coordinator.Authorize{Grantee: s.account("member").Key, Allowed: true}), "run", "main")
	s.must(act(2, coordinator.SetDelegates{Number: s.read("run").State.Authority.Grants, Delegates: keys(700, 1)}), "run", "member")
	s.must(s.admit(3, "spill", "second", true), "run", "spill", "second")
	s.must(s.admit(3, "other", "second", true), "run", "other", "second")

	// A new grant without delegates has one place. The admissions above that number can end.
	s.free()
	a := s.account("grant")
	a.Owner, a.Lamports, a.Data = programID, 1, make([]byte, layout.GrantSize(0))
	s.must(grantTo(s.account("member").Key), "grant", "main")
	s.refused(coordinator.ErrFull, s.admit(9, "member", "grant", true), "run", "member", "grant")
	for _, name := range append(admitted[1:], last) {
		s.must(s.release(2, name), "run", "spill", "grant")
	}
	s.must(s.admit(9, "member", "grant", true), "run", "member", "grant")
}

// TestUnitsOfPlaces measures the most expensive Admit: the program hashes every authorization of a
// run to count the admissions of the grant, and compares the key with all delegates of the grant,
// whose keys differ from it only at the end.
func TestUnitsOfPlaces(t *testing.T) {
	if testing.Short() {
		t.Skip("admits hundreds of clients")
	}
	const room = coordinator.MaxAuthorizations - 3
	near := func(n int) (key coordinator.ClientID) { // not a hash: all keys share the first 31 bytes
		copy(key[:], bytes.Repeat([]byte{7}, 31))
		key[31] = byte(n)
		return key
	}
	s := newSceneOf(t, loadProgram(t), true)
	s.resize("grant", layout.GrantSize(room))
	s.must(grantTo(s.account("member").Key), "grant", "main")
	var units uint64
	for i := range room {
		units = max(units, s.must(delegate(false, near(i)), "grant", "member").Units)
	}
	t.Logf("a delegate: at most %d units", units)
	for i := range 2 {
		s.must(act(uint64(i+1), coordinator.Authorize{Grantee: s.account([]string{"other", "spill"}[i]).Key, Allowed: true}), "run", "main")
		s.must(act(1, coordinator.SetDelegates{Number: uint32(i + 1), Delegates: keys(600+i, 1)}), "run", []string{"other", "spill"}[i])
	}
	units = 0
	for i := range room {
		s.accounts["delegate"] = &runtime.Account{Key: near(i), Lamports: 1, Signer: true}
		units = max(units, s.must(s.admit(1, "delegate", "grant", true), "run", "delegate", "grant").Units)
		units = max(units, s.must(act(2, coordinator.Join{}), "run", "delegate").Units)
	}
	s.must(delegate(true, near(255)), "grant", "member")
	for i := range room - 1 {
		s.must(delegate(false, near(i)), "grant", "member")
	}
	last := s.must(s.admit(1, "member", "grant", true), "run", "member", "grant").Units
	release := s.must(s.release(2, "delegate"), "run", "spill", "grant").Units
	t.Logf("an admission or Join: at most %d units, the last admission: %d, a release: %d", units, last, release)
	if worst := max(units, last, release); worst > 150_000 {
		t.Errorf("%d units, but clients request 150,000", worst)
	}
}

// TestGrantsAndEjection checks that no admission returns a key before the end of its ejection, and
// that a closed run changes no admission.
func TestGrantsAndEjection(t *testing.T) {
	s := newGrants(t)
	join := func(nonce uint64) []byte { return act(nonce, coordinator.Join{}) }
	s.must(s.admit(1, "other", "grant", true), "run", "other", "grant")
	s.must(join(2), "run", "other")
	s.must(act(1, coordinator.Eject{Client: s.account("other").Key}), "run", "main")
	s.refused(coordinator.ErrNotAuthorised, join(3), "run", "other")
	s.must(delegate(true), "grant", "member")
	s.must(s.release(1, "other"), "run", "spill", "grant")
	s.must(delegate(true, s.account("other").Key), "grant", "member")
	s.must(s.admit(4, "other", "grant", true), "run", "other", "grant")
	s.refused(coordinator.ErrNotAuthorised, join(5), "run", "other")
	s.refused(program.ErrGrant, s.release(2, "other"), "run", "spill", "grant")

	s.must(act(2, coordinator.Close{}), "run", "main") // ends all changes of admissions
	s.refused(coordinator.ErrHalted, s.admit(6, "member", "grant", true), "run", "member", "grant")
	s.must(delegate(true), "grant", "member")
	s.refused(coordinator.ErrHalted, s.release(2, "other"), "run", "spill", "grant")
}
