package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"gollama/internal/completion"
	"gollama/internal/engine"
	"gollama/internal/pipeline"
)

// mediaRef names a medium of a prompt: a file, or bytes that a record has in it.
type mediaRef struct {
	path string // "" for bytes
	name string // for messages
	data []byte
}

// mediaFields are the members of a record that name media, beside the parts of messages.
var mediaFields = []string{"media", "image", "images", "audio", "audios", "path_base64"}

// badMedia is the error of a record whose media are not given as they should be.
func badMedia(field, format string, args ...any) error {
	return &pipeline.RecordError{Code: completion.CodeInvalidValue, Msg: field + ": " + fmt.Sprintf(format, args...)}
}

// takeMedia takes the media out of a record: what is left is one that completion.Requests knows. Of messages it leaves a part
// "media_marker" with the given text in place of each.
func takeMedia(rec *pipeline.Record, marker string) (*pipeline.Record, []mediaRef, error) {
	fields, refs, err := membersMedia(rec.Fields, marker)
	if err != nil {
		return nil, nil, err
	}
	rest := *rec
	rest.Fields = fields
	if body, ok := fields["body"]; ok { // OpenAI's batch form, which has no second body in it
		members, err := pipeline.Members(body)
		if err != nil {
			return nil, nil, badMedia("body", "%s", err)
		}
		inner, list, err := membersMedia(members, marker)
		if err != nil {
			return nil, nil, err
		}
		if fields["body"], err = json.Marshal(inner); err != nil {
			return nil, nil, err
		}
		refs = append(refs, list...)
	}
	return &rest, refs, nil
}

// membersMedia takes the media out of members, which it leaves as they are.
func membersMedia(members map[string]json.RawMessage, marker string) (map[string]json.RawMessage, []mediaRef, error) {
	var refs []mediaRef
	fields := maps.Clone(members)
	for _, name := range mediaFields {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		delete(fields, name)
		list, err := fieldMedia(name, raw)
		if err != nil {
			return nil, nil, err
		}
		refs = append(refs, list...)
	}
	raw, ok := fields["messages"]
	if !ok || string(raw) == "null" {
		return fields, refs, nil
	}
	if len(refs) > 0 {
		return nil, nil, badMedia("media", "there are messages, too: put each into the content of its message")
	}
	messages, refs, err := messageMedia(raw, marker)
	if err != nil {
		return nil, nil, err
	}
	fields["messages"] = messages
	return fields, refs, nil
}

// fieldMedia reads a string, or an array of them.
func fieldMedia(name string, raw json.RawMessage) ([]mediaRef, error) {
	list := []json.RawMessage{raw}
	if string(raw) == "null" {
		return nil, nil
	}
	if raw[0] == '[' {
		list = nil
		if err := pipeline.Decode(raw, &list); err != nil {
			return nil, badMedia(name, "%s", err)
		}
	}
	var refs []mediaRef
	for _, one := range list {
		text, err := pipeline.Text(one)
		if err != nil {
			return nil, badMedia(name, "%s", err)
		}
		ref := mediaRef{}
		if name == "path_base64" {
			b, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return nil, badMedia(name, "%s", err)
			}
			if len(b) == 0 {
				return nil, badMedia(name, "the name is empty")
			}
			ref = mediaRef{path: string(b), name: string(b)}
		} else if ref, err = parseRef(text); err != nil {
			return nil, badMedia(name, "%s", err)
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// parseRef reads a path, a file: URL or a data: URL.
func parseRef(text string) (mediaRef, error) {
	scheme, _, _ := strings.Cut(text, ":")
	switch {
	case text == "":
		return mediaRef{}, errors.New("the name is empty")
	case strings.EqualFold(scheme, "http"), strings.EqualFold(scheme, "https"):
		return mediaRef{}, fmt.Errorf("%.60s: gollama downloads nothing, give a file or a data: URL", text)
	case strings.EqualFold(scheme, "data"):
		return parseDataURL(text)
	case strings.EqualFold(scheme, "file"):
		u, err := url.Parse(text)
		if err != nil {
			return mediaRef{}, err
		}
		if u.Host != "" && u.Host != "localhost" || u.Path == "" {
			return mediaRef{}, fmt.Errorf("%.60s: want file:///PATH", text)
		}
		return mediaRef{path: u.Path, name: u.Path}, nil
	}
	return mediaRef{path: text, name: text}, nil
}

// parseDataURL reads data:TYPE;base64,DATA.
func parseDataURL(text string) (mediaRef, error) {
	head, data, ok := strings.Cut(text, ",")
	if !ok || !strings.HasSuffix(strings.ToLower(head), ";base64") {
		return mediaRef{}, fmt.Errorf("%.40s: want data:TYPE;base64,DATA", text)
	}
	return inlineMedia(head, data)
}

// inlineMedia decodes base64, with or without padding.
func inlineMedia(name, data string) (mediaRef, error) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(data, "="))
	if err != nil {
		return mediaRef{}, fmt.Errorf("%.40s: %w", name, err)
	}
	if len(b) == 0 {
		return mediaRef{}, fmt.Errorf("%.40s: it holds nothing", name)
	}
	return mediaRef{name: name, data: b}, nil
}

// messageMedia replaces the media in messages of OpenAI's form.
func messageMedia(raw json.RawMessage, marker string) (json.RawMessage, []mediaRef, error) {
	var messages []map[string]json.RawMessage
	if err := pipeline.Decode(raw, &messages); err != nil {
		return raw, nil, nil // Parse says what is wrong with it
	}
	var refs []mediaRef
	for i, m := range messages {
		content := bytes.TrimSpace(m["content"])
		if len(content) == 0 || content[0] != '[' {
			continue
		}
		var parts []json.RawMessage
		if err := pipeline.Decode(content, &parts); err != nil {
			return nil, nil, badMedia("messages", "message %d: %s", i+1, err)
		}
		for k, part := range parts {
			ref, err := partMedia(part)
			if err != nil {
				return nil, nil, badMedia("messages", "message %d, part %d: %s", i+1, k+1, err)
			}
			if ref == nil {
				continue
			}
			refs = append(refs, *ref)
			if parts[k], err = json.Marshal(engine.ChatPart{Type: "media_marker", Text: marker}); err != nil {
				return nil, nil, err
			}
		}
		var err error
		if m["content"], err = json.Marshal(parts); err != nil {
			return nil, nil, err
		}
	}
	out, err := json.Marshal(messages)
	return out, refs, err
}

// partMedia returns the medium that a part of a message is, nil if it is text.
func partMedia(part json.RawMessage) (*mediaRef, error) {
	var p struct {
		Type     string          `json:"type"`
		ImageURL json.RawMessage `json:"image_url"`
		Audio    struct {
			Data   string `json:"data"`
			Format string `json:"format"`
		} `json:"input_audio"`
		Media, Image json.RawMessage
		Sound        json.RawMessage `json:"audio"`
	}
	if err := pipeline.Decode(part, &p); err != nil {
		return nil, err
	}
	var raw json.RawMessage
	switch p.Type {
	case "text":
		return nil, nil
	case "media_marker":
		return nil, errors.New("media_marker is the program's own: want image_url, input_audio, image, audio or media")
	case "video_url", "input_video", "video":
		return nil, errors.New(noVideo)
	case "input_audio":
		ref, err := inlineMedia("input_audio", p.Audio.Data)
		return &ref, err
	case "image_url":
		raw = p.ImageURL
		var u struct {
			URL json.RawMessage `json:"url"`
		}
		if pipeline.Decode(raw, &u) == nil && u.URL != nil {
			raw = u.URL
		}
	case "image":
		raw = p.Image
	case "audio":
		raw = p.Sound
	case "media":
		raw = p.Media
	default:
		types := []string{"text", "image_url", "input_audio", "image", "audio", "media"}
		return nil, fmt.Errorf("unknown type %q, want one of %s", p.Type, strings.Join(types, ", "))
	}
	text, err := pipeline.Text(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Type, err)
	}
	ref, err := parseRef(text)
	return &ref, err
}

// mediaMessage is a message with media and a text: the media first, as llama-mtmd-cli puts them, or where the text has the
// user's own marker, if there is one.
func mediaMessage(text, userMarker, marker string, n int) (engine.ChatMessage, error) {
	m := engine.ChatMessage{Role: "user"}
	if n == 0 {
		m.Content = text
		return m, nil
	}
	media := engine.ChatPart{Type: "media_marker", Text: marker}
	if userMarker == "" {
		m.Parts = append(slices.Repeat([]engine.ChatPart{media}, n), engine.ChatPart{Type: "text", Text: text})
		return m, nil
	}
	texts := strings.Split(text, userMarker)
	if len(texts)-1 != n {
		return m, fmt.Errorf("the prompt has %d places for media (%s), and there are %d", len(texts)-1, userMarker, n)
	}
	for i, t := range texts {
		if i > 0 {
			m.Parts = append(m.Parts, media)
		}
		if t != "" {
			m.Parts = append(m.Parts, engine.ChatPart{Type: "text", Text: t})
		}
	}
	return m, nil
}
