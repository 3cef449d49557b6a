package localnet

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/solana/sbpf"
	"github.com/psyche-go/psyche/solana/sbpf/runtime"
	"github.com/psyche-go/psyche/solana/transaction"
)

// Instructions of the upgradeable loader. Those that extend or move programs are missing.
const (
	loaderInitialize   = 0
	loaderWrite        = 1
	loaderDeploy       = 2
	loaderUpgrade      = 3
	loaderSetAuthority = 4
	loaderClose        = 5
)

// What an account of the loader is: the first four bytes of its data.
const (
	loaderNothing = iota
	loaderBuffer
	loaderProgram
	loaderProgramData
)

// Where the authority of a buffer and of a program's data lies: a byte 1, then the key.
const (
	bufferAuthority  = 4
	programAuthority = 12
)

func (n *nativeCall) loader() error {
	switch n.data.u32() {
	case loaderInitialize:
		return n.initializeBuffer()
	case loaderWrite:
		return n.write()
	case loaderDeploy:
		return n.deploy()
	case loaderUpgrade:
		return n.upgrade()
	case loaderSetAuthority:
		return n.setAuthority()
	case loaderClose:
		return n.close()
	}
	return runtime.ErrInvalidInstructionData
}

// kind returns what an account of the loader is, and loaderNothing for what is too small.
func kind(a *runtime.Account) uint32 {
	if len(a.Data) < 4 {
		return loaderNothing
	}
	return le.Uint32(a.Data)
}

// change returns the account's data to write into: nobody else's memory.
func (n *nativeCall) change(a *runtime.Account) ([]byte, error) {
	switch {
	case !a.Writable:
		return nil, runtime.ErrReadonlyData
	case a.Owner != transaction.LoaderProgram:
		return nil, runtime.ErrExternalData
	}
	a.Data = bytes.Clone(a.Data)
	return a.Data, nil
}

func (n *nativeCall) initializeBuffer() error {
	if err := n.ready(2); err != nil {
		return err
	}
	buffer, authority := n.accounts[0], n.accounts[1]
	if kind(buffer) != loaderNothing {
		n.log("Buffer account already initialized")
		return runtime.ErrAlreadyInitialized
	}
	if len(buffer.Data) < transaction.BufferHeader {
		return runtime.ErrAccountDataTooSmall
	}
	data, err := n.change(buffer)
	if err != nil {
		return err
	}
	le.PutUint32(data, loaderBuffer)
	putAuthority(data, bufferAuthority, authority.Key)
	return nil
}

func putAuthority(data []byte, at int, key transaction.PublicKey) {
	data[at] = 1
	copy(data[at+1:], key[:])
}

// words are how logs name an authority.
type words struct{ immutable, incorrect, unsigned string }

var (
	ofBuffer  = words{"Buffer is immutable", "Incorrect buffer authority provided", "Buffer authority did not sign"}
	ofProgram = words{"Program not upgradeable", "Incorrect upgrade authority provided", "Upgrade authority did not sign"}
	ofClosed  = words{"Account is immutable", "Incorrect authority provided", "Authority did not sign"}
)

// authorized wants the account to have an authority, and that it signs.
func (n *nativeCall) authorized(a *runtime.Account, at int, authority *runtime.Account, w words) error {
	switch {
	case a.Data[at] == 0:
		n.log(w.immutable)
		return runtime.ErrImmutable
	case !bytes.Equal(a.Data[at+1:at+33], authority.Key[:]):
		n.log(w.incorrect)
		return runtime.ErrIncorrectAuthority
	case !authority.Signer:
		n.log(w.unsigned)
		return runtime.ErrMissingSignature
	}
	return nil
}

func (n *nativeCall) write() error {
	offset := uint64(n.data.u32())
	part := n.data.take(n.data.u64())
	if err := n.ready(2); err != nil {
		return err
	}
	buffer := n.accounts[0]
	if kind(buffer) != loaderBuffer || len(buffer.Data) < transaction.BufferHeader {
		n.log("Invalid Buffer account")
		return runtime.ErrInvalidAccountData
	}
	if err := n.authorized(buffer, bufferAuthority, n.accounts[1], ofBuffer); err != nil {
		return err
	}
	if offset += transaction.BufferHeader; offset+uint64(len(part)) > uint64(len(buffer.Data)) {
		n.logf("Write overflow: %d < %d", len(buffer.Data), offset+uint64(len(part)))
		return runtime.ErrAccountDataTooSmall
	}
	data, err := n.change(buffer)
	if err != nil {
		return err
	}
	copy(data[offset:], part)
	return nil
}

// image returns what a buffer holds and the program that it is, for an authority.
func (n *nativeCall) image(buffer, authority *runtime.Account) ([]byte, *sbpf.Program, error) {
	if kind(buffer) != loaderBuffer || buffer.Owner != transaction.LoaderProgram {
		n.log("Invalid Buffer account")
		return nil, nil, runtime.ErrInvalidArgument
	}
	if buffer.Data[bufferAuthority] != 1 || !bytes.Equal(buffer.Data[bufferAuthority+1:transaction.BufferHeader], authority.Key[:]) {
		n.log("Buffer and upgrade authority don't match")
		return nil, nil, runtime.ErrIncorrectAuthority
	}
	if !authority.Signer {
		n.log("Upgrade authority did not sign")
		return nil, nil, runtime.ErrMissingSignature
	}
	image := buffer.Data[transaction.BufferHeader:]
	if len(image) == 0 {
		n.log("Buffer account too small")
		return nil, nil, runtime.ErrInvalidAccountData
	}
	program, err := sbpf.Load(image)
	if err != nil {
		n.log(err.Error())
		return nil, nil, runtime.ErrInvalidAccountData
	}
	return image, program, nil
}

func (n *nativeCall) deploy() error {
	size := n.data.u64()
	if err := n.ready(8); err != nil {
		return err
	}
	payer, data, program, buffer, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[7]
	if n.accounts[4].Key != transaction.RentSysvar || n.accounts[5].Key != transaction.ClockSysvar {
		return runtime.ErrInvalidArgument
	}
	if err := n.emptyProgram(program); err != nil {
		return err
	}
	image, loaded, err := n.image(buffer, authority)
	if err != nil {
		return err
	}
	if size < uint64(len(image)) {
		n.log("Max data length is too small to hold Buffer data")
		return runtime.ErrAccountDataTooSmall
	}
	if size > runtime.MaxAccountSize-transaction.ProgramDataHeader {
		n.log("Max data length is too large")
		return runtime.ErrInvalidArgument
	}
	if derived, err := transaction.ProgramData(program.Key); err != nil || derived != data.Key {
		n.log("ProgramData address is not derived")
		return runtime.ErrInvalidArgument
	}
	if err := n.fund(payer, data, buffer, int(size)); err != nil {
		return err
	}
	n.putImage(data, image, authority.Key, loaded)
	program.Data = le.AppendUint32(nil, loaderProgram)
	program.Data = append(program.Data, data.Key[:]...)
	program.Executable = true
	n.log("Deployed program " + transaction.PublicKey(program.Key).String())
	return nil
}

// emptyProgram wants an account that can become a program.
func (n *nativeCall) emptyProgram(program *runtime.Account) error {
	switch {
	case kind(program) != loaderNothing:
		n.log("Program account already initialized")
		return runtime.ErrAlreadyInitialized
	case len(program.Data) < transaction.ProgramSize:
		n.log("Program account too small")
		return runtime.ErrAccountDataTooSmall
	case program.Lamports < n.sysvars.Rent.Minimum(len(program.Data)):
		n.log("Program account not rent-exempt")
		return runtime.Error{Name: "ExecutableAccountNotRentExempt"}
	case program.Owner != transaction.LoaderProgram:
		return runtime.ErrExternalData
	case !program.Writable:
		return runtime.ErrReadonlyData
	}
	return nil
}

// fund gives the buffer's lamports to the payer, and lets the payer create the program's data.
func (n *nativeCall) fund(payer, data, buffer *runtime.Account, size int) error {
	switch {
	case !payer.Writable || !buffer.Writable:
		return runtime.ErrReadonlyLamports
	case !payer.Signer || !data.Writable:
		return runtime.Error{Name: "PrivilegeEscalation"}
	case payer.Lamports+buffer.Lamports < payer.Lamports:
		return runtime.ErrArithmeticOverflow
	}
	payer.Lamports += buffer.Lamports
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	need := n.sysvars.Rent.Minimum(transaction.ProgramDataHeader + size)
	if err := n.charge(systemUnits); err != nil {
		return err
	}
	system := transaction.SystemProgram.String()
	n.log("Program " + system + " invoke [2]")
	var err error
	switch {
	case data.Lamports > 0:
		n.logf("Create Account: account Address { address: %s, base: None } already in use", transaction.PublicKey(data.Key))
		err = runtime.Custom(systemInUse)
	case payer.Lamports < need:
		n.logf("Transfer: insufficient lamports %d, need %d", payer.Lamports, need)
		err = runtime.Custom(systemNoLamports)
	}
	if err != nil {
		n.log("Program " + system + " failed: " + err.Error())
		return err
	}
	n.log("Program " + system + " success")
	payer.Lamports -= need
	data.Lamports, data.Owner = need, transaction.LoaderProgram
	data.Data = make([]byte, transaction.ProgramDataHeader+size)
	return nil
}

// putImage fills the account of a program's data.
func (n *nativeCall) putImage(data *runtime.Account, image []byte, authority transaction.PublicKey, program *sbpf.Program) {
	b := make([]byte, len(data.Data))
	le.PutUint32(b, loaderProgramData)
	le.PutUint64(b[4:], n.sysvars.Clock.Slot)
	putAuthority(b, programAuthority, authority)
	copy(b[transaction.ProgramDataHeader:], image)
	data.Data = b
	n.programs[data.Key] = program
}

func (n *nativeCall) upgrade() error {
	if err := n.ready(7); err != nil {
		return err
	}
	data, program, buffer, spill, authority := n.accounts[0], n.accounts[1], n.accounts[2], n.accounts[3], n.accounts[6]
	switch {
	case !program.Executable || program.Owner != transaction.LoaderProgram || kind(program) != loaderProgram:
		n.log("Program account not executable")
		return runtime.ErrAccountNotExecutable
	case !bytes.Equal(program.Data[4:transaction.ProgramSize], data.Key[:]):
		n.log("Program and ProgramData account mismatch")
		return runtime.ErrInvalidArgument
	case !program.Writable || !data.Writable || !buffer.Writable || !spill.Writable:
		return runtime.ErrInvalidArgument
	}
	image, loaded, err := n.image(buffer, authority)
	if err != nil {
		return err
	}
	if len(data.Data) < transaction.ProgramDataHeader+len(image) {
		n.log("ProgramData account not large enough")
		return runtime.ErrAccountDataTooSmall
	}
	if err := n.authorized(data, programAuthority, authority, ofProgram); err != nil {
		return err
	}
	if le.Uint64(data.Data[4:]) == n.sysvars.Clock.Slot {
		n.log("Program was deployed in this block already")
		return runtime.ErrInvalidArgument
	}
	need := n.sysvars.Rent.Minimum(len(data.Data))
	total := data.Lamports + buffer.Lamports
	if total < need {
		n.log("Buffer account balance too low to fund upgrade")
		return runtime.ErrInsufficientFunds
	}
	n.putImage(data, image, authority.Key, loaded)
	buffer.Lamports, buffer.Data = 0, slices.Clone(buffer.Data[:transaction.BufferHeader])
	data.Lamports = need
	spill.Lamports += total - need
	n.log("Upgraded program " + transaction.PublicKey(program.Key).String())
	return nil
}

func (n *nativeCall) setAuthority() error {
	if err := n.ready(2); err != nil {
		return err
	}
	account, authority := n.accounts[0], n.accounts[1]
	at, what := bufferAuthority, ofBuffer
	switch kind(account) {
	case loaderBuffer:
		if len(n.accounts) < 3 {
			n.log("Buffer authority is not optional")
			return runtime.ErrIncorrectAuthority
		}
	case loaderProgramData:
		at, what = programAuthority, ofProgram
	default:
		n.log("Account does not support authorities")
		return runtime.ErrInvalidArgument
	}
	if err := n.authorized(account, at, authority, what); err != nil {
		return err
	}
	data, err := n.change(account)
	if err != nil {
		return err
	}
	if program, found := n.programOf(account); found {
		n.programs[account.Key] = program
	}
	if len(n.accounts) < 3 {
		data[at] = 0 // the key stays behind it, as on the chain
		n.log("New authority None")
		return nil
	}
	putAuthority(data, at, n.accounts[2].Key)
	n.log("New authority Some(" + transaction.PublicKey(n.accounts[2].Key).String() + ")")
	return nil
}

// programOf returns the program that an account of program data holds.
func (n *nativeCall) programOf(account *runtime.Account) (*sbpf.Program, bool) {
	if p, found := n.programs[account.Key]; found {
		return p, true
	}
	old := n.lookup(account.Key)
	if old == nil || old.program == nil {
		return nil, false
	}
	return old.program, true
}

func (n *nativeCall) close() error {
	if err := n.ready(2); err != nil {
		return err
	}
	account, spill := n.accounts[0], n.accounts[1]
	if account.Key == spill.Key {
		n.log("Recipient is the same as the account being closed")
		return runtime.ErrInvalidArgument
	}
	size, at, what := 4, 0, ""
	switch kind(account) {
	case loaderNothing:
	case loaderBuffer:
		size, at, what = transaction.BufferHeader, bufferAuthority, "Buffer"
	case loaderProgramData:
		size, at, what = transaction.ProgramDataHeader, programAuthority, "Program"
	default:
		n.log("Account does not support closing")
		return runtime.ErrInvalidArgument
	}
	if what != "" {
		if err := n.has(3); err != nil {
			return err
		}
		if err := n.authorized(account, at, n.accounts[2], ofClosed); err != nil {
			return err
		}
	}
	if _, err := n.change(account); err != nil {
		return err
	}
	if !spill.Writable {
		return runtime.ErrReadonlyLamports
	}
	spill.Lamports += account.Lamports
	account.Lamports, account.Data = 0, make([]byte, min(size, len(account.Data)))
	n.log("Closed " + what + " " + transaction.PublicKey(account.Key).String())
	return nil
}
