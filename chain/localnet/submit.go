package localnet

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/transaction"
)

// submit executes a transaction in the open slot. It returns a TransactionError if the transaction
// has no effect, not even a fee. If a transaction landed but failed, its error is in the record.
func (l *Ledger) submit(raw []byte) (*Record, error) {
	t, err := transaction.Unmarshal(raw)
	if err != nil {
		return nil, err
	}
	if err := t.Verify(); err != nil {
		return nil, fmt.Errorf("%w: %w", errSignatures, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open()
	o := l.try(&t, open.number, true)
	if !o.landed {
		return nil, o.Err
	}
	oldest := l.behind(l.config.Finalized + maxLag).number
	for key, a := range o.changes {
		l.state.put(key, open.number, oldest, a)
	}
	landed := l.land(open, &o.Record, t.Name(), raw)
	l.noteTransaction(landed, raw)
	return landed, nil
}

// land records a transaction in the open slot.
func (l *Ledger) land(open *slot, r *Record, name transaction.Signature, raw []byte) *Record {
	kept := *r
	kept.Name, kept.Raw, kept.Slot, kept.Time = name, raw, open.number, open.time
	open.records = append(open.records, &kept)
	l.names[name] = &kept
	return &kept
}

// simulation configures simulate.
type simulation struct {
	Verify     bool // verify the signatures
	NewestHash bool // replace the blockhash with the newest one
}

// simulationResult is the result of a simulated transaction.
type simulationResult struct {
	Record
	Accounts map[transaction.PublicKey]*Account // changed accounts
}

// simulate executes a transaction on the view without changing the chain.
func (v View) simulate(raw []byte, s simulation) (*simulationResult, error) {
	t, err := transaction.Unmarshal(raw)
	if err != nil {
		return nil, err
	}
	if s.Verify {
		if err := t.Verify(); err != nil {
			return nil, fmt.Errorf("%w: %w", errSignatures, err)
		}
	}
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	o := v.l.try(&t, v.Slot, !s.NewestHash)
	o.Name, o.Slot = t.Name(), v.Slot
	return &simulationResult{o.Record, o.changes}, nil
}

// try executes a transaction as of a slot.
func (l *Ledger) try(t *transaction.Transaction, number uint64, checkHash bool) outcome {
	m := &t.Message
	refused := func(err *TransactionError) outcome { return outcome{Record: Record{Message: *m, Err: err}} }
	if len(m.Keys) > maxLocks {
		return refused(errLocks)
	}
	if checkHash && !l.isRecent(m.Blockhash, number) {
		return refused(errBlockhash)
	}
	if known := l.names[t.Name()]; known != nil && known.Slot <= number {
		return refused(errProcessed)
	}
	b, err := budgetOf(m)
	if err != nil {
		return refused(err)
	}
	sysvars := l.sysvars(number)
	return execute(m, b, b.fee(len(t.Signatures)+verified(m), l.config.FeeSignable), sysvars, func(key transaction.PublicKey) *Account {
		if isSysvar(key) {
			return sysvarAccount(key, sysvars)
		}
		a, _ := l.state.at(key, number)
		return a
	})
}

// fee returns the fee of a message, in lamports.
func (l *Ledger) fee(m *transaction.Message) (uint64, error) {
	b, err := budgetOf(m)
	if err != nil {
		return 0, err
	}
	return b.fee(int(m.Signers)+verified(m), l.config.FeeSignable), nil
}

// errFaucet means that the faucet is disabled.
var errFaucet = errors.New("the faucet is off")

// maxAirdrop is the limit of one airdrop in lamports: a million SOL.
const maxAirdrop = 1_000_000 * 1_000_000_000

// Airdrop creates lamports. It returns the signature that identifies the airdrop's transaction.
func (l *Ledger) Airdrop(key transaction.PublicKey, lamports uint64) (transaction.Signature, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open()
	old, _ := l.state.at(key, open.number)
	next := Account{}
	if old != nil {
		next = *old
	}
	switch next.Lamports += lamports; {
	case lamports == 0 || lamports > maxAirdrop || next.Lamports < lamports:
		return transaction.Signature{}, fmt.Errorf("airdrop %d lamports: %w: want 1 to %d", lamports, errFaucet, uint64(maxAirdrop))
	case next.Lamports < l.config.Rent.Minimum(len(next.Data)):
		return transaction.Signature{}, fmt.Errorf("airdrop %d lamports: %w: an account must hold at least %d", lamports, errFaucet, l.config.Rent.Minimum(len(next.Data)))
	}
	l.state.put(key, open.number, l.behind(l.config.Finalized+maxLag).number, &next)
	var name transaction.Signature
	first := sha256.Sum256(fmt.Appendf(nil, "psyche/localnet/airdrop %d %d %d %s", l.config.Seed, open.number, len(open.records), key))
	second := sha256.Sum256(first[:])
	copy(name[:], first[:])
	copy(name[len(first):], second[:])
	m := transaction.Message{Signers: 1, Keys: []transaction.PublicKey{key}}
	r := &Record{Message: m, Pre: []uint64{next.Lamports - lamports}, Post: []uint64{next.Lamports}}
	l.land(open, r, name, nil)
	l.kept.note(entryAirdrop, key[:], le.AppendUint64(nil, lamports))
	return name, nil
}

// SetProgram adds an immutable program of the upgradeable loader to the chain. The program can be
// called immediately.
func (l *Ledger) SetProgram(key transaction.PublicKey, image []byte) error {
	program, err := sbpf.Load(image)
	if err != nil {
		return err
	}
	at, err := transaction.ProgramData(key)
	if err != nil {
		return err
	}
	data := make([]byte, transaction.ProgramDataHeader+len(image))
	le.PutUint32(data, loaderProgramData)
	copy(data[transaction.ProgramDataHeader:], image)
	head := append(le.AppendUint32(nil, loaderProgram), at[:]...)
	l.SetAccount(at, &Account{Owner: transaction.LoaderProgram, Lamports: l.config.Rent.Minimum(len(data)), Data: data, program: program})
	l.SetAccount(key, &Account{Owner: transaction.LoaderProgram, Lamports: l.config.Rent.Minimum(len(head)), Data: head, Executable: true})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.note(entryProgram, key[:], image)
	return l.kept.err
}

// SetAccount sets an account, or removes it if a is nil, for tests.
func (l *Ledger) SetAccount(key transaction.PublicKey, a *Account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.put(key, l.open().number, l.behind(l.config.Finalized+maxLag).number, a)
}

// maxLag is the maximum number of slots that a node may be behind.
const maxLag = 64
