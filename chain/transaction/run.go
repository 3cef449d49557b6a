package transaction

import (
	"crypto/sha256"
	"encoding/hex"
)

// Program is the address of Psyche's program on a chain. Its methods build the instructions of a
// run.
type Program PublicKey

// Numbers of the program's instructions: the first byte of their data.
const (
	RunInit     = 1
	RunWrite    = 2
	RunGenesis  = 3
	RunAct      = 4
	RunTick     = 5
	RunFree     = 6
	RunAnnounce = 7
	RunForget   = 8
	RunMigrate  = 9
	RunGrant    = 10
	RunDelegate = 11
)

// Limits of the instructions' contents.
const (
	MaxRunWrite     = 950 // bytes of one Write
	MaxRunDelegates = 28  // keys of one Delegate
)

// RunAddress returns the account of the run that main creates with this id.
func (p Program) RunAddress(main PublicKey, runID string) (PublicKey, error) {
	return CreateWithSeed(main, runID, PublicKey(p))
}

// PeerSeed returns the seed of the accounts in which participants of a run announce their
// addresses.
func PeerSeed(run PublicKey) string { return seedOf(run) }

// GrantSeed returns the seed of the accounts of all grants to a key.
func GrantSeed(grantee PublicKey) string { return seedOf(grantee) }

// seedOf returns the seed that stands for a key: half of its SHA-256, in hexadecimal.
func seedOf(key PublicKey) string {
	sum := sha256.Sum256(key[:])
	return hex.EncodeToString(sum[:])[:maxSeedLength]
}

// GrantAddress returns the account in which a join authority authorizes a key for all of its runs.
func (p Program) GrantAddress(grantor, grantee PublicKey) (PublicKey, error) {
	return CreateWithSeed(grantor, GrantSeed(grantee), PublicKey(p))
}

// PeerAddress returns the account in which a participant of a run announces its addresses.
func (p Program) PeerAddress(owner, run PublicKey) (PublicKey, error) {
	return CreateWithSeed(owner, PeerSeed(run), PublicKey(p))
}

func (p Program) instruction(data []byte, accounts ...AccountMeta) Instruction {
	return Instruction{Program: PublicKey(p), Accounts: accounts, Data: data}
}

// Init turns a new account, created in the same transaction, into a run's account.
func (p Program) Init(run, main PublicKey) Instruction {
	return p.instruction([]byte{RunInit}, writes(run), signs(main))
}

// Write writes bytes into the run's staging area.
func (p Program) Write(run, main PublicKey, offset uint32, part []byte) Instruction {
	return p.instruction(append(le.AppendUint32([]byte{RunWrite}, offset), part...), writes(run), signs(main))
}

// Writes writes all of staged into the staging area. Each of its instructions has at most size
// bytes and needs its own transaction.
func (p Program) Writes(run, main PublicKey, staged []byte, size int) []Instruction {
	var all []Instruction
	for at := 0; at < len(staged); at += size {
		all = append(all, p.Write(run, main, uint32(at), staged[at:min(at+size, len(staged))]))
	}
	return all
}

// Genesis starts the run with the staged genesis.
func (p Program) Genesis(run, main PublicKey, staged []byte) Instruction {
	return p.instruction(appendStaged([]byte{RunGenesis}, staged), writes(run), signs(main))
}

// Act submits an action with its kind and body in the encoding of package wire.
func (p Program) Act(run, actor PublicKey, nonce uint64, action []byte) Instruction {
	return p.instruction(append(le.AppendUint64([]byte{RunAct}, nonce), action...), writes(run), signs(actor))
}

// ActStaged submits an action with a staged body.
func (p Program) ActStaged(run, actor PublicKey, nonce uint64, kind uint8, staged []byte) Instruction {
	data := append(le.AppendUint64([]byte{RunAct}, nonce), kind)
	return p.instruction(appendStaged(data, staged), writes(run), signs(actor))
}

// Tick applies a due transition of the run. The salt makes equal ticks different transactions.
func (p Program) Tick(run PublicKey, salt []byte) Instruction {
	return p.instruction(append([]byte{RunTick}, salt...), writes(run))
}

// Grant turns a new account, created in the same transaction, into the grantor's grant to a key.
func (p Program) Grant(grant, grantor, grantee PublicKey) Instruction {
	return p.instruction(append([]byte{RunGrant}, grantee[:]...), writes(grant), signs(grantor))
}

// Delegate adds at most MaxRunDelegates delegates to a grant. clear removes the previous ones.
func (p Program) Delegate(grant, grantee PublicKey, clear bool, added []PublicKey) Instruction {
	data := []byte{RunDelegate, 0}
	if clear {
		data[1] = 1
	}
	for _, key := range added {
		data = append(data, key[:]...)
	}
	return p.instruction(data, writes(grant), signs(grantee))
}

// ActGranted submits an action that depends on a grant.
func (p Program) ActGranted(run, actor, grant PublicKey, nonce uint64, action []byte) Instruction {
	in := p.Act(run, actor, nonce, action)
	in.Accounts = append(in.Accounts, reads(grant))
	return in
}

// Free closes a finished run's account, or a grant's account, and transfers its lamports to spill.
// main is the run's main authority or the grantor.
func (p Program) Free(run, main, spill PublicKey) Instruction {
	return p.instruction([]byte{RunFree}, writes(run), signs(main), writes(spill))
}

// Announce sets the addresses in the participant's account for the run.
func (p Program) Announce(peer, owner, run PublicKey, addrs []string) Instruction {
	data := []byte{RunAnnounce, uint8(len(addrs))}
	for _, addr := range addrs {
		data = append(le.AppendUint16(data, uint16(len(addr))), addr...)
	}
	return p.instruction(data, writes(peer), signs(owner), reads(run))
}

// Forget closes the participant's account for a run and transfers its lamports to spill.
func (p Program) Forget(peer, owner, spill PublicKey) Instruction {
	return p.instruction([]byte{RunForget}, writes(peer), signs(owner), writes(spill))
}

// appendStaged appends the length and the hash of the staged bytes.
func appendStaged(data, staged []byte) []byte {
	sum := sha256.Sum256(staged)
	return append(le.AppendUint32(data, uint32(len(staged))), sum[:]...)
}
