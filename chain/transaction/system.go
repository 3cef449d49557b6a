package transaction

import "encoding/binary"

var le = binary.LittleEndian

// Programs and accounts that exist on every chain.
var (
	SystemProgram        = PublicKey{}
	ComputeBudgetProgram = mustParse("ComputeBudget111111111111111111111111111111")
	LoaderProgram        = mustParse("BPFLoaderUpgradeab1e11111111111111111111111")
	RentSysvar           = mustParse("SysvarRent111111111111111111111111111111111")
	ClockSysvar          = mustParse("SysvarC1ock11111111111111111111111111111111")
	SlotHashesSysvar     = mustParse("SysvarS1otHashes111111111111111111111111111")
	Ed25519Program       = mustParse("Ed25519SigVerify111111111111111111111111111")
	InstructionsSysvar   = mustParse("Sysvar1nstructions1111111111111111111111111")
)

// mustParse parses a constant.
func mustParse(text string) PublicKey {
	key, err := ParsePublicKey(text)
	if err != nil {
		panic(err)
	}
	return key
}

// Numbers of the system program's instructions.
const (
	systemCreate           = 0
	systemAssign           = 1
	systemTransfer         = 2
	systemCreateWithSeed   = 3
	systemAllocate         = 8
	systemAllocateWithSeed = 9
)

func system(number uint32, accounts ...AccountMeta) Instruction {
	return Instruction{Program: SystemProgram, Accounts: accounts, Data: le.AppendUint32(nil, number)}
}

func signs(key PublicKey) AccountMeta    { return AccountMeta{Key: key, Signer: true} }
func writes(key PublicKey) AccountMeta   { return AccountMeta{Key: key, Writable: true} }
func reads(key PublicKey) AccountMeta    { return AccountMeta{Key: key} }
func signsFor(key PublicKey) AccountMeta { return AccountMeta{Key: key, Signer: true, Writable: true} }

// Transfer moves lamports; from signs.
func Transfer(from, to PublicKey, lamports uint64) Instruction {
	in := system(systemTransfer, signsFor(from), writes(to))
	in.Data = le.AppendUint64(in.Data, lamports)
	return in
}

// CreateAccount creates an account filled with zeros; both keys sign.
func CreateAccount(from, account PublicKey, lamports, space uint64, owner PublicKey) Instruction {
	in := system(systemCreate, signsFor(from), signsFor(account))
	in.Data = le.AppendUint64(in.Data, lamports)
	in.Data = le.AppendUint64(in.Data, space)
	in.Data = append(in.Data, owner[:]...)
	return in
}

// CreateAccountWithSeed creates an account filled with zeros at CreateWithSeed(base, seed, owner).
// from pays. from and base sign.
func CreateAccountWithSeed(from, base PublicKey, seed string, lamports, space uint64, owner PublicKey) (Instruction, error) {
	account, err := CreateWithSeed(base, seed, owner)
	if err != nil {
		return Instruction{}, err
	}
	in := system(systemCreateWithSeed, signsFor(from), writes(account))
	if base != from {
		in.Accounts = append(in.Accounts, signs(base))
	}
	in.Data = appendSeed(in.Data, base, seed)
	in.Data = le.AppendUint64(in.Data, lamports)
	in.Data = le.AppendUint64(in.Data, space)
	in.Data = append(in.Data, owner[:]...)
	return in, nil
}

func appendSeed(data []byte, base PublicKey, seed string) []byte {
	data = append(data, base[:]...)
	return append(le.AppendUint64(data, uint64(len(seed))), seed...)
}

// AllocateWithSeed sets the size and the owner of the account at CreateWithSeed(base, seed, owner),
// independently of its lamports. base signs.
func AllocateWithSeed(base PublicKey, seed string, space uint64, owner PublicKey) (Instruction, error) {
	account, err := CreateWithSeed(base, seed, owner)
	if err != nil {
		return Instruction{}, err
	}
	in := system(systemAllocateWithSeed, writes(account), signs(base))
	in.Data = le.AppendUint64(appendSeed(in.Data, base, seed), space)
	in.Data = append(in.Data, owner[:]...)
	return in, nil
}

// MakeWithSeed creates an account filled with zeros at CreateWithSeed(base, seed, owner), and adds
// lamports to its balance. Unlike CreateAccountWithSeed, it also works if the address already holds
// lamports, which any key can send there. from and base sign.
func MakeWithSeed(from, base PublicKey, seed string, lamports, space uint64, owner PublicKey) ([]Instruction, error) {
	allocate, err := AllocateWithSeed(base, seed, space, owner)
	if err != nil || lamports == 0 {
		return []Instruction{allocate}, err
	}
	return []Instruction{Transfer(from, allocate.Accounts[0].Key, lamports), allocate}, nil
}

// Assign changes the owner of an account to a program. The account signs.
func Assign(account, owner PublicKey) Instruction {
	in := system(systemAssign, signsFor(account))
	in.Data = append(in.Data, owner[:]...)
	return in
}

// Allocate sets the size of an empty account. The account signs.
func Allocate(account PublicKey, space uint64) Instruction {
	in := system(systemAllocate, signsFor(account))
	in.Data = le.AppendUint64(in.Data, space)
	return in
}

// ComputeUnitLimit limits the compute units of the transaction.
func ComputeUnitLimit(units uint32) Instruction {
	return Instruction{Program: ComputeBudgetProgram, Data: le.AppendUint32([]byte{2}, units)}
}

// ComputeUnitPrice offers a price in millionths of a lamport for each unit of the limit.
func ComputeUnitPrice(microLamports uint64) Instruction {
	return Instruction{Program: ComputeBudgetProgram, Data: le.AppendUint64([]byte{3}, microLamports)}
}
