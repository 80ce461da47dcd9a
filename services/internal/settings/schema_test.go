package settings_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/internal/testkit"
)

// chart describes how a Helm chart accepts a component's settings: by their environment names,
// under "settings" in its values.
type chart struct {
	setByChart map[string]string   // settings that values may not contain, and how the chart sets them
	enums      map[string][]string // settings for which the chart accepts fewer values than the component
}

// property is the JSON schema of one setting.
type property struct {
	Description string   `json:"description"`
	Type        any      `json:"type,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Minimum     *int     `json:"minimum,omitempty"`
	Maximum     *int     `json:"maximum,omitempty"`
	Pattern     string   `json:"pattern,omitempty"`
	MinLength   int      `json:"minLength,omitempty"`
}

// settingsBlock matches the settings in a values.schema.json.
var settingsBlock = regexp.MustCompile(`(?ms)^    "settings": \{.*?^    \}`)

// checkSchema compares the settings in a chart's values.schema.json with cfg. With update it
// rewrites them.
func (c chart) checkSchema(file string, cfg any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	schema, err := c.renderSchema(cfg)
	if err != nil {
		return err
	}
	current := settingsBlock.Find(text)
	switch {
	case current == nil:
		return fmt.Errorf("%s: the block %q is missing, indented by four spaces", file, `"settings": {…}`)
	case bytes.Equal(current, schema):
		return nil
	case !*testkit.Update:
		return fmt.Errorf("%s: the settings differ from the code; run: make generate", file)
	default:
		text = bytes.Replace(text, current, schema, 1)
		return os.WriteFile(file, text, 0o644)
	}
}

// renderSchema renders the settings in the order of cfg's fields.
func (c chart) renderSchema(cfg any) ([]byte, error) {
	var all []string
	known := map[string]bool{}
	for _, f := range settings.List(cfg) {
		known[f.Env] = true
		if c.setByChart[f.Env] != "" {
			continue
		}
		if f.Secret {
			return nil, fmt.Errorf("%s is a secret; a chart's values must not contain it", f.Env)
		}
		p, err := c.newProperty(&f)
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		e.SetIndent("        ", "  ")
		if err := e.Encode(p); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Env, err)
		}
		all = append(all, fmt.Sprintf("        %q: %s", f.Env, strings.TrimSpace(text.String())))
	}
	for _, names := range []iter.Seq[string]{maps.Keys(c.setByChart), maps.Keys(c.enums)} {
		for name := range names {
			if !known[name] {
				return nil, fmt.Errorf("%s is not a setting", name)
			}
		}
	}
	return fmt.Appendf(nil, `    "settings": {
      "type": "object",
      "additionalProperties": false,
      "properties": {
%s
      }
    }`, strings.Join(all, ",\n")), nil
}

func (c chart) newProperty(f *settings.Field) (property, error) {
	p := property{Description: f.Help, Type: "string", Enum: f.Enum}
	if values := c.enums[f.Env]; values != nil {
		p.Enum = values
	}
	t, pattern := f.Type(), f.Pattern()
	switch {
	case p.Enum != nil:
		p.Type = nil
		return p, nil
	case t == reflect.TypeFor[time.Duration]():
		pattern = `([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+`
		if f.Min == "0s" { // people write 0 without a unit
			pattern, p.Type, p.Minimum, p.Maximum = "(0|"+pattern+")", []string{"string", "integer"}, new(int), new(int)
		}
	case t.Kind() == reflect.Bool:
		p.Type = "boolean"
		return p, nil
	case t.Kind() == reflect.Int:
		p.Type, p.Minimum, p.Maximum = "integer", parseBound(f.Min), parseBound(f.Max)
		return p, nil
	case t.Kind() == reflect.Uint16:
		p.Type, p.Minimum, p.Maximum = "integer", parseBound("1"), parseBound("65535")
		return p, nil
	case pattern == "":
		p.MinLength = 1
		return p, nil
	}
	if f.IsList() {
		pattern += "(," + pattern + ")*"
	}
	p.Pattern = "^" + pattern + "$"
	if strings.HasPrefix(pattern, "[0-9]+") || strings.HasPrefix(pattern, "[1-9]") { // in YAML, digits alone are a number
		p.Type, p.Minimum = []string{"string", "integer"}, new(int)
	}
	if _, err := regexp.Compile(p.Pattern); err != nil {
		return p, fmt.Errorf("pattern of %s: %w", f.Env, err)
	}
	return p, nil
}

// accepts reports whether a value is allowed as written in YAML, where digits are a number if the schema allows one.
func (p property) accepts(value string) bool {
	if p.Enum != nil {
		return slices.Contains(p.Enum, value)
	}
	if p.Type == "boolean" {
		return value == "true" || value == "false"
	}
	if n, err := strconv.Atoi(value); err == nil && p.Type != "string" {
		return (p.Minimum == nil || *p.Minimum <= n) && (p.Maximum == nil || n <= *p.Maximum)
	}
	return p.Type != "integer" && len(value) >= p.MinLength && regexp.MustCompile(p.Pattern).MatchString(value)
}

func parseBound(text string) *int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil
	}
	return &n
}
