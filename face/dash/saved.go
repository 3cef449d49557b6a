package dash

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/verify"
)

// modules are the page's scripts that import each other, each after its imports.
var modules = []string{
	"parts.js", "axes.js", "picture.js", "charts.js", "check.js", "named.js", "verify.js", "other.js", "learning.js", "progress.js", "people.js", "story.js",
	"trust.js", "invite.js", "talk.js", "ending.js", "hero.js", "members.js", "events.js", "details.js", "app.js",
}

// maxSavedLog is the maximum size of a log in a saved page, in bytes: a browser has all of it in
// memory.
const maxSavedLog = 128 << 20

// errLogTooLong means that a log is too long for a page.
var errLogTooLong = errors.New("the log is too long for a page")

// savedPolicy is the content security policy of a saved page: it may run its own content, and fetch
// nothing.
const savedPolicy = "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' data: blob:; worker-src blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

// Save writes the page of one run as a self-contained file with the page, the verifier and the
// run's log. told is the description that the log has to match. When the file is opened, its
// verifier checks the log, and the page shows only verified data.
func (v *Verifier) Save(w io.Writer, log []byte, told verify.Told, source string) error {
	if len(log) > maxSavedLog {
		return fmt.Errorf("%w: %d bytes, the limit of a page is %d", errLogTooLong, len(log), maxSavedLog)
	}
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	_, err := to.Write(log)
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	facts, err := json.Marshal(map[string]any{"told": told, "source": source, "log": follow.Extent{Records: told.Records, Bytes: int64(len(log)), Head: told.Head}})
	if err != nil {
		return err
	}
	imports, err := v.imports()
	if err != nil {
		return err
	}
	worker, err := asset("worker.js")
	if err != nil {
		return err
	}
	page, err := asset("index.html")
	if err != nil {
		return err
	}
	var styles strings.Builder
	for _, name := range []string{"colours.css", "style.css"} {
		style, err := asset(name)
		if err != nil {
			return err
		}
		styles.WriteString(style)
	}
	_, head, found := strings.Cut(page, "<head>")
	head, body, whole := strings.Cut(head, "</head>")
	if !found || !whole {
		return errors.New("the page's index.html has no head")
	}
	title, _, _ := strings.Cut(head, "<link") // the linked content is in this file
	parts := []string{
		"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta http-equiv=\"Content-Security-Policy\" content=\"", html.EscapeString(savedPolicy), "\">", title,
		"<style>", styles.String(), "</style>\n</head>", strings.TrimSuffix(strings.TrimSpace(body), "</html>"),
		inert("saved-facts", "application/json", strings.ReplaceAll(string(facts), "<", "\\u003c")),
		inert("saved-log", "application/octet-stream", base64.StdEncoding.EncodeToString(packed.Bytes())),
		inert("saved-verifier", "application/octet-stream", base64.StdEncoding.EncodeToString(v.program)),
		inert("saved-worker", "application/octet-stream", base64.StdEncoding.EncodeToString([]byte(strings.Replace(worker, "import \"./wasm_exec.js\";\n", string(v.loader)+"\n", 1)))),
		"<script type=\"importmap\">", imports, "</script>\n<script type=\"module\">import \"psyche/app.js\";</script>\n</html>\n",
	}
	for _, part := range parts {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}

// inert returns a part of a page that a browser does not execute.
func inert(id, kind, content string) string {
	return "<script id=\"" + id + "\" type=\"" + kind + "\">" + content + "</script>\n"
}

func asset(name string) (string, error) {
	content, err := fs.ReadFile(embedded, "assets/"+name)
	return string(content), err
}

// imports returns the import map of a saved page's modules.
func (v *Verifier) imports() (string, error) {
	found := make(map[string]string, len(modules))
	for _, name := range modules {
		content, err := asset(name)
		if err != nil {
			return "", err
		}
		content = strings.ReplaceAll(content, "from \"./", "from \"psyche/")
		found["psyche/"+name] = "data:text/javascript;base64," + base64.StdEncoding.EncodeToString([]byte(content))
	}
	text, err := json.Marshal(map[string]any{"imports": found})
	return string(text), err
}

// SaveLog verifies a log and writes its page to a new file. It does not overwrite a file. name is the name of the log in errors.
func (v *Verifier) SaveLog(output string, from io.Reader, name, source string) error {
	var log bytes.Buffer
	check := verify.New()
	_, err := io.Copy(check, io.TeeReader(io.LimitReader(from, maxSavedLog+1), &log))
	found := check.Close(verify.Told{})
	if log.Len() > maxSavedLog {
		return fmt.Errorf("%w: %s exceeds %d bytes; verify it with psyche run replay, or show it with psyche dash", errLogTooLong, name, maxSavedLog)
	}
	if !found.Verified {
		return fmt.Errorf("%s: %s", name, found.Problem)
	}
	if err != nil {
		return err
	}
	content := log.Bytes()[:found.Bytes] // without the incomplete write at the end
	told := verify.Told{Run: found.Run, Records: found.Records, Head: found.Head, State: found.State}
	partial, err := os.CreateTemp(filepath.Dir(output), ".page-*")
	if err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	defer func() { _ = os.Remove(partial.Name()) }() // fails after the rename
	err = v.Save(partial, content, told, source)
	if err = errors.Join(err, partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, fails if the file was created in the meantime.
	if err := os.Link(partial.Name(), output); err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	return nil
}
