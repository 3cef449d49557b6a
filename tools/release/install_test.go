package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

// site is a web server with releases, and the installer of the newest release.
type site struct {
	folder, url string
	key         signer
}

func newSite(t *testing.T) *site {
	t.Helper()
	for _, program := range []string{"sh", "curl", "tar", "gzip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the installer needs %s: %v", program, err)
		}
	}
	if native.machine != "amd64" && native.machine != "arm64" || runtime.GOOS == "windows" {
		t.Skip("the installer does not support this platform")
	}
	key := newSigner(t)
	s := &site{folder: t.TempDir(), key: key}
	server := httptest.NewServer(http.FileServer(http.Dir(s.folder)))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// publish adds a release whose programs contain the given files in addition to their executables.
func (s *site) publish(t *testing.T, version string, more ...string) {
	t.Helper()
	folder := filepath.Join(s.folder, "v"+version)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"psyche", "psyche-client"} {
		files := []file{{name: "bin/" + program, data: []byte("#!/bin/sh\necho " + program + " " + version + "\n"), exec: true}}
		for _, name := range more {
			files = append(files, file{name: "share/doc/" + program + "/" + name, data: []byte(version)})
		}
		name := program + "-" + version + "-" + native.String()
		if err := pack(filepath.Join(folder, name+".tar.gz"), name, files, time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("../../scripts/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	text, err := installer(string(script), []setting{{"version", version}, {"releases", s.url}, {"public_key", s.key.public}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, installerName), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	s.seal(t, version, s.key)
}

func (s *site) seal(t *testing.T, version string, key signer) {
	t.Helper()
	if err := seal(filepath.Join(s.folder, "v"+version), key, "Psyche "+version); err != nil {
		t.Fatal(err)
	}
}

// newSigner returns a new key without a file: deriving a file's key from its password takes seconds.
func newSigner(t *testing.T) signer {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, public.String()}
}

func (s *site) file(version, name string) string { return filepath.Join(s.folder, "v"+version, name) }

// home is an empty folder in which users run the line that installs.
type home string

// run downloads a release's installer and runs it with an environment that has only HOME and PATH.
func (h home) run(t *testing.T, s *site, version, args string) (string, error) {
	t.Helper()
	line := "curl -fsSL " + s.url + "/v" + version + "/install.sh | sh -s -- --only psyche " + args
	return h.shell(t, line, nil)
}

func (h home) shell(t *testing.T, line string, env []string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "sh", "-c", line)
	command.Dir = string(h)
	command.Env = append([]string{"HOME=" + string(h), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, env...)
	out, err := command.CombinedOutput()
	return string(out), err
}

func (h home) installed(name string) bool {
	_, err := os.Stat(filepath.Join(string(h), ".local", name))
	return err == nil
}

// empty checks that an installer left nothing behind.
func (h home) empty(t *testing.T) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(string(h), ".local", "*", "*"))
	if hidden, _ := filepath.Glob(filepath.Join(string(h), ".local", ".*")); err != nil || len(found)+len(hidden) > 0 {
		t.Errorf("got %v, %v %v; want nil error and len(found) + len(hidden) == 0", err, found, hidden)
	}
}

func TestInstall(t *testing.T) {
	s := newSite(t)
	s.publish(t, "0.1.0", "NOTICE", "old")
	h := home(t.TempDir())
	out, err := h.run(t, s, "0.1.0", "")
	if err != nil || !h.installed("bin/psyche") || !h.installed("share/doc/psyche/old") || h.installed("bin/psyche-client") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"Installed version 0.1.0", `export PATH="` + string(h) + `/.local/bin:$PATH"`, "psyche host FOLDER"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	if found, err := h.shell(t, ".local/bin/psyche", nil); err != nil || found != "psyche 0.1.0\n" {
		t.Errorf("%v: got %q; want nil error and \"psyche 0.1.0\\n\"", err, found)
	}

	s.publish(t, "0.2.0", "NOTICE", "new")
	out, err = h.run(t, s, "0.2.0", "")
	if err != nil || h.installed("share/doc/psyche/old") || !h.installed("share/doc/psyche/new") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = h.run(t, s, "0.2.0", "--version v0.1.0"); err != nil || !strings.Contains(out, "Installed version 0.1.0") {
		t.Errorf("%v\n%s", err, out)
	}
	own := filepath.Join(string(h), ".local", "share", "doc", "own")
	if err := os.WriteFile(own, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = h.run(t, s, "0.2.0", "--uninstall")
	if err != nil || h.installed("bin/psyche") || h.installed("lib") || h.installed("share/doc/psyche") || !h.installed("share/doc/own") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = h.run(t, s, "0.2.0", "--uninstall"); err == nil || !strings.Contains(out, "contains no installation") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInstallPrefix installs both programs into another folder, without --only.
func TestInstallPrefix(t *testing.T) {
	s := newSite(t)
	if native != (platform{"linux", "amd64"}) {
		t.Skip("psyche-client has archives for linux-amd64 only")
	}
	s.publish(t, "0.1.0")
	h := home(t.TempDir())
	out, err := h.shell(t, "curl -fsSL "+s.url+"/v0.1.0/install.sh | sh -s -- --prefix 'a folder' && 'a folder/bin/psyche-client'", nil)
	if err != nil || !strings.HasSuffix(out, "psyche-client 0.1.0\n") || h.installed("bin") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInstallRefuses damages a release in many ways. The installer must explain each one, and install
// nothing.
func TestInstallRefuses(t *testing.T) {
	if _, err := exec.LookPath("minisign"); err != nil {
		requireOpenSSL(t)
	}
	archive := "psyche-0.1.0-" + native.String() + ".tar.gz"
	change := func(name string) func(*testing.T, *site) {
		return func(t *testing.T, s *site) {
			data, err := os.ReadFile(s.file("0.1.0", name))
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			if err := os.WriteFile(s.file("0.1.0", name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		damage func(*testing.T, *site)
		args   string
		says   string
	}{
		"archive":           {change(archive), "", "is damaged or was changed"},
		"checksums":         {change(sumsName), "", "signature of SHA256SUMS is wrong"},
		"signature":         {change(signatureName), "", "signature of SHA256SUMS is wrong"},
		"another key":       {func(t *testing.T, s *site) { s.seal(t, "0.1.0", newSigner(t)) }, "", "signature of SHA256SUMS is wrong"},
		"no signature":      {func(t *testing.T, s *site) { remove(t, s.file("0.1.0", signatureName)) }, "", "cannot download"},
		"no archive":        {func(t *testing.T, s *site) { remove(t, s.file("0.1.0", archive)) }, "", "cannot download"},
		"unknown version":   {nil, "--version 9.9.9", "cannot download"},
		"half an archive":   {func(t *testing.T, s *site) { halve(t, s.file("0.1.0", archive)) }, "", "is damaged or was changed"},
		"unlisted archive":  {func(t *testing.T, s *site) { remove(t, s.file("0.1.0", archive)); s.seal(t, "0.1.0", s.key) }, "", "does not list " + archive},
		"version of a path": {nil, "--version ../x", "want a version"},
		"unknown option":    {nil, "--nonsense", "unknown option --nonsense"},
		"option's value":    {nil, "--prefix", "--prefix needs a value"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.publish(t, "0.1.0")
			if c.damage != nil {
				c.damage(t, s)
			}
			h := home(t.TempDir())
			out, err := h.run(t, s, "0.1.0", c.args)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("%v, want %q in:\n%s", err, c.says, out)
			}
			h.empty(t)
		})
	}
}

// TestInstallWithoutTools replaces PATH by a folder with few programs.
func TestInstallWithoutTools(t *testing.T) {
	s := newSite(t)
	s.publish(t, "0.1.0")
	for name, c := range map[string]struct {
		without []string
		fakes   map[string]string
		args    string
		says    string
		fine    bool
	}{
		"curl and wget":   {without: []string{"curl", "wget"}, says: "curl and wget are missing"},
		"tar":             {without: []string{"tar"}, says: "tar is missing"},
		"checksums":       {without: []string{"sha256sum", "shasum", "openssl"}, says: "no tool computes SHA-256"},
		"signatures":      {without: []string{"minisign", "openssl"}, says: "the signature is not verified", fine: true},
		"strict":          {without: []string{"minisign", "openssl"}, args: "--require-signature", says: "install minisign or OpenSSL 3"},
		"old openssl":     {without: []string{"minisign"}, fakes: map[string]string{"openssl": "echo LibreSSL 3.3.6"}, says: "the signature is not verified", fine: true},
		"system":          {fakes: map[string]string{"uname": "echo Plan9"}, says: "no installer for Plan9"},
		"processor":       {fakes: map[string]string{"uname": "case $1 in -s) echo Linux ;; *) echo mips ;; esac"}, says: "no archives for linux on mips"},
		"system's client": {fakes: map[string]string{"uname": "case $1 in -s) echo Darwin ;; *) echo arm64 ;; esac"}, args: "--only psyche-client", says: "no archive of psyche-client for darwin on arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			bin := fewTools(t, c.without, c.fakes)
			h := home(t.TempDir())
			args := c.args
			if !strings.Contains(args, "--only") {
				args += " --only psyche"
			}
			out, err := h.shell(t, "PATH="+bin+" sh "+s.file("0.1.0", installerName)+" "+args, nil)
			if (err == nil) != c.fine || !strings.Contains(out, c.says) {
				t.Errorf("%v, want %q in:\n%s", err, c.says, out)
			}
			if !c.fine {
				h.empty(t)
			}
		})
	}
}

// TestSignatureWithOpenSSL verifies signatures without minisign.
func TestSignatureWithOpenSSL(t *testing.T) {
	requireOpenSSL(t)
	bin := fewTools(t, []string{"minisign"}, nil)
	for name, c := range map[string]struct {
		change func(*testing.T, *site)
		says   string
	}{
		"valid":       {func(*testing.T, *site) {}, "The signature of SHA256SUMS is valid."},
		"another key": {func(t *testing.T, s *site) { s.seal(t, "0.1.0", newSigner(t)) }, "signature of SHA256SUMS is wrong"},
		"checksums": {func(t *testing.T, s *site) {
			file, err := os.OpenFile(s.file("0.1.0", sumsName), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := file.WriteString("\n"); err != nil {
				t.Fatal(err)
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}, "signature of SHA256SUMS is wrong"},
		"half": {func(t *testing.T, s *site) { halve(t, s.file("0.1.0", signatureName)) }, "signature of SHA256SUMS is wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.publish(t, "0.1.0")
			c.change(t, s)
			h := home(t.TempDir())
			out, err := h.shell(t, "PATH="+bin+" sh "+s.file("0.1.0", installerName)+" --only psyche --require-signature", nil)
			if (err == nil) != (name == "valid") || !strings.Contains(out, c.says) {
				t.Errorf("%v, want %q in:\n%s", err, c.says, out)
			}
			if err != nil {
				h.empty(t)
			}
		})
	}
}

// TestInstallOldSystem checks the version of the C library.
func TestInstallOldSystem(t *testing.T) {
	s := newSite(t)
	if native != (platform{"linux", "amd64"}) {
		t.Skip("psyche-client has archives for linux-amd64 only")
	}
	s.publish(t, "0.1.0")
	script := s.file("0.1.0", installerName)
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(script, []byte(strings.Replace(string(text), "client_glibc=''", "client_glibc='2.36'", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	for says, getconf := range map[string]string{
		"this system has 2.31":       "echo glibc 2.31",
		"has another C library":      "exit 1",
		"psyche-client join 'psyche": "echo glibc 2.36",
	} {
		bin := fewTools(t, []string{"ldd"}, map[string]string{"getconf": getconf})
		h := home(t.TempDir())
		out, err := h.shell(t, "PATH="+bin+" sh "+script, nil)
		if err != nil || !strings.Contains(out, says) || !h.installed("bin/psyche") {
			t.Errorf("%s: %v\n%s", says, err, out)
		}
	}
}

// TestTruncatedInstaller runs the beginnings of the installer.
func TestTruncatedInstaller(t *testing.T) {
	s := newSite(t)
	s.publish(t, "0.1.0")
	text, err := os.ReadFile(s.file("0.1.0", installerName))
	if err != nil {
		t.Fatal(err)
	}
	lengths := []int{0, 1}
	for i := 2; i < len(text); i += len(text) / 40 {
		lengths = append(lengths, i)
	}
	for i := len(text) - 30; i < len(text)-2; i++ { // the last two bytes close the block
		lengths = append(lengths, i)
	}
	h := home(t.TempDir())
	for _, n := range lengths {
		command := exec.CommandContext(t.Context(), "sh", "-s", "--", "--only", "psyche")
		command.Dir, command.Env = string(h), []string{"HOME=" + string(h), "PATH=/usr/bin:/bin"}
		command.Stdin = strings.NewReader(string(text[:n]))
		out, err := command.CombinedOutput()
		if entries, _ := os.ReadDir(string(h)); len(entries) > 0 {
			t.Fatalf("%d of %d bytes: %v: %v\n%s", n, len(text), err, entries, out)
		}
	}
}

// TestInstallerOfTheRepository checks that the installer without a release's values explains this.
func TestInstallerOfTheRepository(t *testing.T) {
	out, err := home(t.TempDir()).shell(t, "sh "+repository(t)+"/scripts/install.sh", nil)
	if err == nil || !strings.Contains(out, "set PSYCHE_RELEASES") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInstallAfterAKill kills the installer during a download. The next installer must remove its files, but not the files of
// an installer that runs.
func TestInstallAfterAKill(t *testing.T) {
	s := newSite(t)
	s.publish(t, "0.1.0")
	h := home(t.TempDir())
	script := s.file("0.1.0", installerName)
	bin := fewTools(t, nil, map[string]string{"curl": "kill -KILL $PPID"})
	if out, err := h.shell(t, "PATH="+bin+" sh "+script+" --only psyche; exit 0", nil); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	folders := filepath.Join(string(h), ".local", ".psyche-install.*")
	killed, err := filepath.Glob(folders)
	if err != nil || len(killed) != 1 {
		t.Fatalf("the killed installer left %v, %v", killed, err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	day := time.Now().Add(-25 * time.Hour)
	for _, c := range []struct {
		suffix  string
		changed time.Time
		keep    bool
	}{
		{name + "." + strconv.Itoa(os.Getpid()) + ".running", time.Now(), true},
		{name + "." + strconv.Itoa(os.Getpid()) + ".reused", day, false},
		{"elsewhere.1.running", time.Now(), true},
		{name + ".elsewhere.999999999.running", time.Now(), true},
		{"elsewhere.1.killed", day, false},
		{"nameless", time.Now(), true},
	} {
		folder := strings.TrimSuffix(folders, "*") + c.suffix
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, c.changed, c.changed); err != nil {
			t.Fatal(err)
		}
		if c.keep {
			kept = append(kept, folder)
		}
	}
	if out, err := h.run(t, s, "0.1.0", ""); err != nil || !h.installed("bin/psyche") {
		t.Fatalf("%v\n%s", err, out)
	}
	left, err := filepath.Glob(folders)
	slices.Sort(kept)
	if err != nil || !slices.Equal(left, kept) {
		t.Errorf("the next installer left %v, %v; want %v", left, err, kept)
	}
}

func requireOpenSSL(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "openssl", "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "OpenSSL 3") {
		t.Skipf("neither minisign nor OpenSSL 3 is installed: %v %s", err, out)
	}
}

// fewTools returns a folder with the installer's programs, without some of them, and with fake ones.
func fewTools(t *testing.T, without []string, fakes map[string]string) string {
	t.Helper()
	bin := t.TempDir()
	for _, name := range strings.Fields("sh cat curl wget uname mktemp mkdir rmdir rm mv tar gzip sed grep tail dd wc cut dirname find getconf ldd sha256sum shasum openssl minisign") {
		path, err := exec.LookPath(name)
		if err != nil || strings.Contains(" "+strings.Join(without, " ")+" ", " "+name+" ") || fakes[name] != "" {
			continue
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range fakes {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func halve(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}
