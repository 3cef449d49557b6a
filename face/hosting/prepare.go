package hosting

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/checkpoint/modelarchive"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// creates reports whether the run starts with a new model.
func (o Options) creates() bool {
	_, found := recipe.SizeOf(o.Model)
	return found
}

// prepare makes the files of the run that are missing or outdated.
func (h *host) prepare(ctx context.Context) error {
	found, err := h.readRecord()
	if err == nil && !found && !h.begun() {
		err = h.keep() // marks the folder as a run's (checkFolder)
	}
	if err != nil {
		return err
	}
	files, local, why, err := h.want(ctx)
	if err != nil {
		return err
	}
	edited, err := h.edited()
	if err != nil {
		return err
	}
	diff := h.now.differences(h.Wanted)
	switch {
	case h.begun() && !found:
		return fmt.Errorf("%w: %s is missing; restore the file, or begin again with --again, which moves the earlier run away", errBegun, h.path(recordFile))
	case h.begun() && diff != "":
		return fmt.Errorf("%w: %s; repeat the first command, choose another --name, or begin again with --again, which moves the earlier run away", errBegun, diff)
	case h.begun():
		if edited {
			h.printf("  the changes of state.toml have no effect, because the run has begun; see psyche run update-config\n")
		}
		h.printf("  the run has begun, and continues\n")
		return h.restoreData(ctx, files, local)
	case edited && diff != "":
		return fmt.Errorf("%w, and the settings changed: %s; repeat the earlier command, or remove %s", errEdited, diff, h.path(stateFile))
	}
	if edited {
		if err := h.checkEdited(); err != nil {
			return err
		}
	}
	text, err := h.data(ctx, files, local, why)
	if err != nil {
		return err
	}
	if minimum := h.request().LeastTokens(); text.Tokens < minimum {
		return fmt.Errorf("%w: %d tokens, but one round of %d members trains %d; add text, or set --friends to a smaller number", recipe.ErrText, text.Tokens, h.Friends+1, minimum)
	}
	facts, err := h.model(ctx)
	if err != nil {
		return err
	}
	facts.Tokens, facts.TokenSize = text.Tokens, text.TokenSizeInBytes
	if facts.Speed, err = h.measure(ctx, facts); err != nil {
		return err
	}
	h.Wanted = h.now
	if edited {
		h.printf("  state.toml was edited, and is used unchanged\n")
		return h.keep()
	}
	return h.files(facts, diff != "")
}

// want sets h.now. It returns the files of the text, the local paths of all texts, and the reason for the
// tokenizer. It reads the files' contents only if their names, sizes or times differ from the recorded ones.
func (h *host) want(ctx context.Context) (files []walk.File, local []string, why string, err error) {
	h.now = wanted{
		Texts: h.Texts, Model: h.Model, Friends: h.Friends, Link: float64(h.Link), Hours: h.Hours, Open: h.Open,
		Authority: h.Authority, PublicAddr: h.PublicAddr, Port: h.Port,
	}
	h.now.Tokenizer, why = h.chooseTokenizer()
	if content, err := os.ReadFile(h.now.Tokenizer); err == nil {
		h.now.Vocabulary = hashOf(content)
	}
	if h.begun() && h.Tokenizer == "" { // it may no longer be next to the text
		h.now.Tokenizer, h.now.Vocabulary = h.Wanted.Tokenizer, h.Wanted.Vocabulary
	}
	remote := slices.ContainsFunc(h.Texts, isRemote)
	if !h.begun() || !remote {
		if local, err = h.Local(ctx, h.Texts); err == nil {
			files, err = textFiles(local)
		}
	}
	if h.begun() && (remote || missing(err)) { // the token files suffice
		h.now.Stat, h.now.Text = h.Wanted.Stat, h.Wanted.Text
		return nil, nil, why, nil
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w: no file in %s; name a folder with text", recipe.ErrText, strings.Join(h.Texts, ", "))
	}
	if err != nil {
		return nil, nil, "", fmt.Errorf("read the text: %w", err)
	}
	h.now.Stat, h.now.Text = statHash(files), h.Wanted.Text
	if h.now.Stat != h.Wanted.Stat {
		h.now.Text, err = h.contentHash(ctx, files)
	}
	if err == nil && h.begun() && h.now.Text != h.Wanted.Text {
		h.printf("  the text has changed; the run continues with the earlier text (--again begins a new run)\n")
		h.now.Stat, h.now.Text = h.Wanted.Stat, h.Wanted.Text
		return nil, nil, why, nil
	}
	return files, local, why, err
}

// data makes the token files.
func (h *host) data(ctx context.Context, files []walk.File, local []string, why string) (manifest.Manifest, error) {
	h.printf("  tokenizer  %s (%s)\n", h.now.Tokenizer, why)
	same := h.DataOf == h.now.ofData()
	text, found, err := manifest.Read(h.path("data"))
	if err == nil && (!found || !same || !h.complete(text)) {
		text, err = h.tokenize(ctx, files, local)
	}
	if err != nil {
		return text, err
	}
	h.printf("  text       %d tokens, and %d held out\n", text.Tokens, text.HeldOutTokens)
	return text, nil
}

// complete reports whether the token files of a manifest exist, with their sizes.
func (h *host) complete(text manifest.Manifest) bool {
	for _, file := range slices.Concat(text.Files, text.HeldOut) {
		info, err := os.Stat(h.path("data", filepath.FromSlash(file.Name)))
		if err != nil || uint64(info.Size()) != file.Tokens*uint64(text.TokenSizeInBytes) {
			return false
		}
	}
	return true
}

// restoreData makes the token files of a run that has begun again, if files are missing.
func (h *host) restoreData(ctx context.Context, files []walk.File, local []string) error {
	before, found, err := manifest.Read(h.path("data"))
	if err != nil || found && h.complete(before) {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%w in %s, and this machine does not have the run's text; restore the files or the text", errData, h.path("data"))
	}
	h.printf("  token files are missing, and are made again\n")
	after, err := h.tokenize(ctx, files, local)
	if err != nil || !found || slices.Equal(before.Files, after.Files) {
		return err
	}
	content, err := before.Encode() // so that the next call finds the difference too
	if err == nil {
		err = writeFile(h.path("data", manifest.Name), content)
	}
	return errors.Join(fmt.Errorf("%w: the new files in %s have other tokens, perhaps from another version of this program; restore the earlier files", errData, h.path("data")), err)
}

// tokenize makes the token files. An interrupted call continues.
func (h *host) tokenize(ctx context.Context, files []walk.File, local []string) (manifest.Manifest, error) {
	encoder, err := h.LoadTokenizer(ctx, h.now.Tokenizer)
	if err != nil {
		return manifest.Manifest{}, err
	}
	o, err := h.hold(files, local)
	if err != nil {
		return manifest.Manifest{}, err
	}
	if o.Separator, err = separator(encoder); err != nil {
		return manifest.Manifest{}, err
	}
	m := meter.New(h.Err, "psyche: tokenizing")
	defer m.Done()
	o.Output, o.Force, o.Tokenizer, o.TokenizerName = h.path("data"), true, encoder, h.now.Tokenizer
	o.Progress = func(p prepare.Progress) { m.At(p.Input, p.AllInput) }
	text, err := prepare.Run(ctx, o)
	switch {
	case errors.Is(err, diskspace.ErrTooLittle):
		err = fmt.Errorf("%w, or choose a folder on another disk with --dir", err)
	case errors.Is(err, prepare.ErrOneText):
		err = fmt.Errorf("%w: only one file has text; name this file instead of its folder, so that its end is held out", recipe.ErrText)
	case err != nil && len(o.HeldOut) > 0: // the error names the two parts
		err = fmt.Errorf("%s: %w", files[0].Path, err)
	}
	if err != nil {
		return text, err
	}
	h.DataOf = h.now.ofData()
	return text, h.keep()
}

// model makes or finds the first model, and returns its properties.
func (h *host) model(ctx context.Context) (facts recipe.Facts, err error) {
	same := h.ModelOf == h.now.ofModel()
	if !same {
		h.Speed = 0 // it was measured with another model
	}
	if size, found := recipe.SizeOf(h.Model); found {
		return h.newModel(ctx, size, same)
	}
	dir, err := h.modelFolder(ctx)
	if err != nil {
		return facts, err
	}
	m := meter.New(h.Err, "psyche: reading the model")
	defer m.Done()
	archive, err := modelarchive.Open(ctx, dir, m.At)
	if err != nil {
		return facts, fmt.Errorf("--model %s: %w", h.Model, err)
	}
	config, err := os.ReadFile(filepath.Join(dir, checkpoint.ConfigFile))
	if err != nil {
		return facts, err
	}
	facts.Trained, facts.Parameters = true, archive.Parameters()
	facts.MaxTokens, err = maxTokens(config)
	h.printf("  model      %s, %d parameters\n", h.Model, facts.Parameters)
	h.ModelOf = h.now.ofModel()
	return facts, err
}

// modelFolder returns the folder of the first model. It downloads a model of the Hub.
func (h *host) modelFolder(ctx context.Context) (string, error) {
	switch {
	case h.creates():
		return h.path("model"), nil
	case h.hub() == "":
		return filepath.Abs(h.Model)
	}
	out, err := child.Output(ctx, nil, h.Client, "download", h.Model)
	return strings.TrimSpace(string(out)), err
}

// hub returns the Hub repository of the first model, or "".
func (o Options) hub() string {
	if _, err := os.Stat(o.Model); err == nil || o.creates() || strings.Count(o.Model, "/") != 1 {
		return ""
	}
	return o.Model
}

// maxTokens returns the length of the longest sequence of a model.
func maxTokens(config []byte) (int, error) {
	var c struct {
		Max int `json:"max_position_embeddings"`
	}
	if err := json.Unmarshal(pythonjson.Quoted(config), &c); err != nil {
		return 0, fmt.Errorf("%s: %w", checkpoint.ConfigFile, err)
	}
	if c.Max <= 0 {
		return 0, fmt.Errorf("%s has no max_position_embeddings", checkpoint.ConfigFile)
	}
	return c.Max, nil
}

// newModel creates a model with random weights, unless the same model exists.
func (h *host) newModel(ctx context.Context, size recipe.Size, same bool) (recipe.Facts, error) {
	encoder, err := h.LoadTokenizer(ctx, h.now.Tokenizer)
	if err != nil {
		return recipe.Facts{}, err
	}
	config, err := size.Config(encoder.VocabSize())
	if err != nil {
		return recipe.Facts{}, err
	}
	facts := recipe.Facts{Parameters: size.Parameters(encoder.VocabSize())}
	if facts.MaxTokens, err = maxTokens(config); err != nil {
		return facts, err
	}
	h.printf("  model      %s\n", size)
	if _, err = os.Stat(h.path("model", checkpoint.ConfigFile)); err == nil && same {
		return facts, nil
	}
	if err := errors.Join(os.RemoveAll(h.path("model")), os.WriteFile(h.path("model.json"), config, 0o644)); err != nil {
		return facts, err
	}
	kind := "none"
	if h.now.Tokenizer == "bytes" {
		kind = "bytes"
	}
	if _, err := child.Output(ctx, nil, h.Client, "init-model", "--config", h.path("model.json"), "--seed", "1", "--tokenizer", kind, "--output", h.path("model")); err != nil {
		return facts, err
	}
	if kind == "none" {
		name := tokenizer.PieceFile
		if json.Valid(encoder.JSON()) {
			name = tokenizer.JSONFile
		}
		if err := os.WriteFile(h.path("model", name), encoder.JSON(), 0o644); err != nil {
			return facts, err
		}
	}
	h.ModelOf = h.now.ofModel()
	return facts, h.keep()
}

// measuredSteps is the number of steps that measure the speed of the machine. The first step, which
// also prepares libtorch, does not count.
const measuredSteps = 4

// measure returns how many tokens per second this machine trains.
func (h *host) measure(ctx context.Context, facts recipe.Facts) (float64, error) {
	if h.Speed > 0 {
		return h.Speed, nil
	}
	model, err := h.modelFolder(ctx)
	if err != nil {
		return 0, err
	}
	dir := h.path(".speed")
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil { // an interrupted measurement may have left it
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // hidden, and small
	_, err = child.Output(ctx, nil, h.Client, "solo", "--model", model, "--data-path", h.path("data"), "--seq-len", fmt.Sprint(min(facts.MaxTokens, recipe.SeqLen)),
		"--optimizer", "adamw", "--total-batch", "1", "--micro-batch", "1", "--steps", fmt.Sprint(measuredSteps), "--events-dir", dir)
	if err != nil {
		return 0, fmt.Errorf("measure the speed of this machine: %w", err)
	}
	tokens, seconds := 0, 0.0
	for e, err := range event.Read(filepath.Join(dir, "events.jsonl")) {
		if err != nil {
			return 0, err
		}
		if trained, ok := e.Body.(event.Trained); ok && trained.Step > 1 {
			tokens, seconds = tokens+trained.Tokens, seconds+trained.Seconds
		}
	}
	if tokens == 0 || seconds <= 0 {
		return 0, errors.New("measure the speed of this machine: no step was measured")
	}
	h.Speed = float64(tokens) / seconds
	return h.Speed, h.keep()
}

// files writes state.toml and data.toml. changed reports whether the settings differ from the recorded
// ones, so that the ports are chosen again. If the user requested none, ports that are now in use are replaced too.
func (h *host) files(facts recipe.Facts, changed bool) (err error) {
	if h.Host = h.PublicAddr; h.Host == "" {
		h.Host = h.OwnAddress()
	}
	if h.FirstPort == 0 || changed || h.Port == 0 && checkPorts(h.FirstPort, allPorts) != nil {
		if h.FirstPort, err = choosePort(h.Port); err != nil {
			return err
		}
	}
	request := h.request()
	request.Facts = facts
	made, err := recipe.Of(request)
	if err != nil {
		return err
	}
	h.printf("  speed      %.0f tokens/s on this machine (measured)\n\n", facts.Speed)
	h.show(made)
	state := made.StateTOML(
		"psyche host wrote this file. You can edit it until the run begins. The reason for each value is above it.",
		"docs/configuration.md describes all keys.")
	// The record comes first, so that after a crash the new file does not look edited.
	h.State = hashOf(state)
	err = errors.Join(os.RemoveAll(h.path(stateFile)), h.keep(), writeFile(h.path("data.toml"), made.DataTOML("data")), writeFile(h.path(stateFile), state))
	return diskspace.Explain(err, "remove other files, and run the command again")
}

// request returns the request for the run's recipe, without facts.
func (h *host) request() recipe.Request {
	return recipe.Request{
		Name: h.Name, Host: h.Host, Port: h.FirstPort + dataPort, Friends: h.Friends, Link: h.Link, Hours: h.Hours, Open: h.Open, Hub: h.hub(),
	}
}

// stateFile is the name of the run's definition.
const stateFile = "state.toml"

// show prints the important choices.
func (h *host) show(made recipe.Recipe) {
	for _, c := range made.Choices {
		if c.Shown {
			h.printf("  %-24s %-8s %s\n", c.Key, recipe.Literal(c.Value), c.Reason)
		}
	}
	h.printf("  The run trains %.3g M tokens: %.0f %% of the text. All values: %s\n\n", made.Tokens/1e6, 100*made.Passes, h.path(stateFile))
}

// edited reports whether the user changed state.toml.
func (h *host) edited() (bool, error) {
	text, err := os.ReadFile(h.path(stateFile))
	if missing(err) {
		return false, nil
	}
	return err == nil && hashOf(text) != h.State, err
}

// checkEdited checks an edited state.toml.
func (h *host) checkEdited() error {
	run, err := config.LoadState(h.path(stateFile))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrState, err)
	case run.RunID != h.Name:
		return fmt.Errorf("%w: run_id is %q, but the name of the run is %q; set --name instead", ErrState, run.RunID, h.Name)
	}
	return nil
}

func hashOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
