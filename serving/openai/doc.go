// Package openai serves a model over OpenAI's HTTP API: completions and chats, streamed or whole,
// for many clients at the same time. It does HTTP and admission; package session/schedule batches
// requests into steps.
//
//	s, err := openai.New(m, openai.Options{})
//	if err != nil { … }
//	h := &http.Server{Addr: "127.0.0.1:8080", Handler: s, ReadHeaderTimeout: 10 * time.Second}
//	err = h.ListenAndServe()
//
// An answer does not depend on other requests. A parameter that would change the text and is not
// supported is an error that names it; the header Krait-Warning names unknown ones.
package openai
