package transaction

// Bytes of the upgradeable loader's headers.
const (
	BufferHeader      = 37 // of a buffer, before the program's image
	ProgramSize       = 36 // size of a program's own account
	ProgramDataHeader = 45 // of a program's data, before its image
)

// MaxLoaderWrite is the maximum number of image bytes in one LoaderWrite, in a transaction with one
// signature, a compute limit and a price.
const MaxLoaderWrite = 900

// Numbers of the upgradeable loader's instructions.
const (
	loaderInitializeBuffer = 0
	loaderWrite            = 1
	loaderDeploy           = 2
	loaderUpgrade          = 3
	loaderSetAuthority     = 4
	loaderClose            = 5
)

func loader(number uint32, accounts ...AccountMeta) Instruction {
	return Instruction{Program: LoaderProgram, Accounts: accounts, Data: le.AppendUint32(nil, number)}
}

// ProgramData returns the loader's account for the image of a program.
func ProgramData(program PublicKey) (PublicKey, error) {
	data, _, err := findProgramAddress(LoaderProgram, program[:])
	return data, err
}

// InitializeBuffer turns an account of the loader, created in the same transaction, into a buffer.
func InitializeBuffer(buffer, authority PublicKey) Instruction {
	return loader(loaderInitializeBuffer, writes(buffer), reads(authority))
}

// LoaderWrite writes part of an image into a buffer.
func LoaderWrite(buffer, authority PublicKey, offset uint32, part []byte) Instruction {
	in := loader(loaderWrite, writes(buffer), signs(authority))
	in.Data = le.AppendUint32(in.Data, offset)
	in.Data = append(le.AppendUint64(in.Data, uint64(len(part))), part...)
	return in
}

// Deploy deploys a buffer as a program with space for an image of maxSize bytes. The program's
// account is created in the same transaction.
func Deploy(payer, program, buffer, authority PublicKey, maxSize uint64) (Instruction, error) {
	data, err := ProgramData(program)
	if err != nil {
		return Instruction{}, err
	}
	in := loader(loaderDeploy, signsFor(payer), writes(data), writes(program), writes(buffer),
		reads(RentSysvar), reads(ClockSysvar), reads(SystemProgram), signs(authority))
	in.Data = le.AppendUint64(in.Data, maxSize)
	return in, nil
}

// Upgrade replaces the image of a program with a buffer's image.
func Upgrade(program, buffer, authority, spill PublicKey) (Instruction, error) {
	data, err := ProgramData(program)
	if err != nil {
		return Instruction{}, err
	}
	return loader(loaderUpgrade, writes(data), writes(program), writes(buffer), writes(spill),
		reads(RentSysvar), reads(ClockSysvar), signs(authority)), nil
}

// Finalize makes a program immutable.
func Finalize(program, authority PublicKey) (Instruction, error) {
	data, err := ProgramData(program)
	if err != nil {
		return Instruction{}, err
	}
	return loader(loaderSetAuthority, writes(data), signs(authority)), nil
}

// CloseBuffer closes a buffer and transfers its lamports to spill.
func CloseBuffer(buffer, spill, authority PublicKey) Instruction {
	return loader(loaderClose, writes(buffer), writes(spill), signs(authority))
}
