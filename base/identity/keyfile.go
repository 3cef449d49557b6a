package identity

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/psyche-go/psyche/base/secret"
)

// SecretKeyVariable is the environment variable that may hold a key: 64 hexadecimal
// digits, the 32 seed bytes.
const SecretKeyVariable = "RAW_IDENTITY_SECRET_KEY"

// maxKeyFileSize bounds what is read of a key file; solana-keygen writes about 230 bytes.
const maxKeyFileSize = 4096

// ErrKeyFileExists says that a key file was not written because one is there already.
var ErrKeyFileExists = errors.New("key file exists and is never overwritten")

// ErrKeyFileOpen says that others than its owner may read or write a key file.
var ErrKeyFileOpen = errors.New("other users can access the key file")

// LoadKeyFile reads a key from a file in either of the two formats: the JSON array of 64
// numbers of solana-keygen, or exactly 32 raw seed bytes. A file that others than its owner may
// read or write is refused, as ssh does. The error names the file and what is wrong with it and,
// for a missing file, is fs.ErrNotExist.
func LoadKeyFile(path string) (Key, error) {
	file, err := os.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("read key file: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := checkMode(file); err != nil {
		return Key{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFileSize+1))
	if err != nil {
		return Key{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	key, err := parseKeyFile(content)
	if err != nil {
		return Key{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	return key, nil
}

// checkMode refuses a file that others may read or write. Windows has no such bits, and what is no
// regular file (a pipe, for instance) has no content that lies there.
func checkMode(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode(); runtime.GOOS != "windows" && mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return fmt.Errorf("%w: its mode is %04o; chmod 600 %s if no other user can have read it, or make a new key",
			ErrKeyFileOpen, mode.Perm(), file.Name())
	}
	return nil
}

// parseKeyFile reads the content of a key file (see LoadKeyFile).
func parseKeyFile(content []byte) (Key, error) {
	if len(content) == SeedSize {
		return FromSeed([SeedSize]byte(content)), nil
	}
	if len(content) > maxKeyFileSize {
		return Key{}, fmt.Errorf("%w: more than %d bytes, so neither a JSON key nor %d raw bytes", ErrInvalidKey, maxKeyFileSize, SeedSize)
	}
	var numbers []int
	if err := json.Unmarshal([]byte(secret.Trim(string(content))), &numbers); err != nil {
		return Key{}, fmt.Errorf("%w: want a JSON array of 64 numbers (as solana-keygen writes) or exactly %d raw bytes, found %d bytes: %w",
			ErrInvalidKey, SeedSize, len(content), err)
	}
	if len(numbers) != SeedSize+IDSize {
		return Key{}, fmt.Errorf("%w: the JSON array has %d numbers, want %d", ErrInvalidKey, len(numbers), SeedSize+IDSize)
	}
	var private [SeedSize + IDSize]byte
	for i, n := range numbers {
		if n < 0 || n > 255 {
			return Key{}, fmt.Errorf("%w: number %d of the JSON array is not a byte", ErrInvalidKey, i)
		}
		private[i] = byte(n)
	}
	key := FromSeed([SeedSize]byte(private[:SeedSize]))
	if id := key.ID(); !bytes.Equal(id[:], private[SeedSize:]) {
		return Key{}, fmt.Errorf("%w: the last %d numbers are not the public key of the first %d; the file is damaged",
			ErrInvalidKey, IDSize, SeedSize)
	}
	return key, nil
}

// ParseSecretHex reads 64 hexadecimal digits, the 32 seed bytes of a key. Blanks around them do not matter.
func ParseSecretHex(text string) (Key, error) {
	// The text is a secret: no message repeats any of it.
	text = secret.Trim(text)
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != SeedSize {
		return Key{}, fmt.Errorf("%w: want %d hexadecimal digits, found %d characters", ErrInvalidKey, 2*SeedSize, len(text))
	}
	return FromSeed([SeedSize]byte(seed)), nil
}

// KeyFromEnvironment reads the key in SecretKeyVariable. The second result is false when
// the variable is not set, or empty. lookup is os.LookupEnv outside tests.
func KeyFromEnvironment(lookup func(string) (string, bool)) (Key, bool, error) {
	text, _ := lookup(SecretKeyVariable)
	if text == "" {
		return Key{}, false, nil
	}
	key, err := ParseSecretHex(text)
	return key, true, ofVariable(SecretKeyVariable, err)
}

// AppendJSON appends the key in the format of solana-keygen: a JSON array of the 32 seed
// bytes and the 32 public bytes.
func (k Key) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, v := range k.private {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, v)
	}
	return append(b, ']')
}

// SaveKeyFile writes the key in the format of solana-keygen, readable by the owner only.
// The file appears whole or not at all, and a file that is there is never overwritten:
// then the error is ErrKeyFileExists.
func SaveKeyFile(path string, key Key) error {
	return saveNew(path, append(key.AppendJSON(nil), '\n'))
}

// SaveRawKeyFile writes the 32 seed bytes of the key; otherwise it is like SaveKeyFile.
func SaveRawKeyFile(path string, key Key) error {
	return saveNew(path, key.private.Seed())
}

// saveNew writes content to a new file of mode 0600. It links a finished temporary file to
// path, because that, unlike a rename, fails when path exists.
func saveNew(path string, content []byte) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("write key file %s: %w: choose another path, or move it away", path, ErrKeyFileExists)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Sync()
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	if err := os.Link(temporary.Name(), path); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = ErrKeyFileExists
		}
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	return nil
}
