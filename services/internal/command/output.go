package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"sigs.k8s.io/yaml"

	"github.com/slicefeed/slicefeed/services/internal/display"
)

// Format is the form in which a command prints its result.
type Format string

// The formats. The empty Format is the table, too.
const (
	Table Format = "table" // text for people
	JSON  Format = "json"
	YAML  Format = "yaml" // the same as JSON, with the keys of each object sorted
)

var formats = []string{string(Table), string(JSON), string(YAML)}

// String, Set and Type make a Format the value of a flag.
func (f *Format) String() string { return string(*f) }

// Set accepts the name of a format.
func (f *Format) Set(text string) error {
	if !slices.Contains(formats, text) {
		return errors.New("want one of " + strings.Join(formats, ", "))
	}
	*f = Format(text)
	return nil
}

// Type is the placeholder in --help.
func (f *Format) Type() string { return strings.Join(formats, "|") }

// IsTable reports whether the result is text for people.
func (f *Format) IsTable() bool { return *f == Table || *f == "" }

// Write writes a result as JSON or YAML. Text in it cannot control a terminal: in JSON its control and format characters
// are escaped, in YAML some are spaces.
func (f *Format) Write(out io.Writer, result any) error {
	encoded, err := encodeJSON(result)
	if err == nil && *f == YAML {
		encoded, err = yaml.JSONToYAML([]byte(display.Sanitize(string(encoded))))
	} else {
		encoded = escapeControls(encoded)
	}
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	_, err = out.Write(encoded)
	return err
}

func encodeJSON(result any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(result)
	return b.Bytes(), err
}

// escapeControls escapes the control and format characters that an encoder of JSON leaves as they are. They occur in
// strings only, except the line ends.
func escapeControls(encoded []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(encoded) {
		if r == '\n' || !unicode.In(r, unicode.Cc, unicode.Cf) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.Bytes()
}
