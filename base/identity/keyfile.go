package identity

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/psyche-go/psyche/base/secret"
)

// SecretKeyVariable is the environment variable that may contain a key: 64 hexadecimal digits, the
// 32 seed bytes.
const SecretKeyVariable = "RAW_IDENTITY_SECRET_KEY"

// maxKeyFileSize limits the size of a key file; solana-keygen writes about 230 bytes.
const maxKeyFileSize = 4096

// ErrKeyFileExists means that a key file was not written because the file already exists.
var ErrKeyFileExists = errors.New("key file exists and is never overwritten")

// ErrKeyFileOpen means that other users may read or write a key file.
var ErrKeyFileOpen = errors.New("other users can access the key file")

// LoadKeyFile reads a key from a file in either of the two formats: the JSON array of 64 numbers of
// solana-keygen, or exactly 32 raw seed bytes. Like ssh, it rejects a file that other users may
// read or write. The error names the file and the problem. For a missing file it is fs.ErrNotExist.
func LoadKeyFile(path string) (Key, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, fmt.Errorf("read key file: %w; correct the path, or create a key: psyche keys new --output FILE", err)
	}
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

// checkMode rejects a file that other users may read or write. It accepts all files on Windows, which
// has no such mode bits. It also accepts files that are not regular, such as pipes, because they store
// no content.
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

// parseKeyFile parses the content of a key file (see LoadKeyFile).
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

// parseSecretHex parses 64 hexadecimal digits, the 32 seed bytes of a key. It ignores spaces around
// them.
func parseSecretHex(text string) (Key, error) {
	// The text is a secret, so no error contains any of it.
	text = secret.Trim(text)
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != SeedSize {
		return Key{}, fmt.Errorf("%w: want %d hexadecimal digits, found %d characters", ErrInvalidKey, 2*SeedSize, len(text))
	}
	return FromSeed([SeedSize]byte(seed)), nil
}

// KeyFromEnvironment reads the key in SecretKeyVariable. The second result is false if the variable
// is not set, or empty. lookup is os.LookupEnv outside tests.
func KeyFromEnvironment(lookup func(string) (string, bool)) (Key, bool, error) {
	text, _ := lookup(SecretKeyVariable)
	if text == "" {
		return Key{}, false, nil
	}
	key, err := parseSecretHex(text)
	return key, true, ofVariable(SecretKeyVariable, err)
}

// appendJSON appends the key in the format of solana-keygen: a JSON array of the 32 seed bytes and
// the 32 public bytes.
func (k Key) appendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, v := range k.private {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Append(b, v)
	}
	return append(b, ']')
}

// SaveKeyFile writes the key in the format of solana-keygen, readable by the owner only. It creates the
// file atomically. It never overwrites an existing file, but returns ErrKeyFileExists.
func SaveKeyFile(path string, key Key) error {
	return saveNew(path, append(key.appendJSON(nil), '\n'))
}

// SaveRawKeyFile writes the 32 seed bytes of the key; otherwise it is like SaveKeyFile.
func SaveRawKeyFile(path string, key Key) error {
	return saveNew(path, key.private.Seed())
}

// saveNew writes content to a new file of mode 0600. It links a finished temporary file to path,
// because linking, unlike renaming, fails if path exists.
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
