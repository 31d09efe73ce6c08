/* Just enough JSON to read the header of a program file where it lies: values are pieces of the text. The text is known
 * to be whole by the file's CRC; of anything else nothing outside of it is read. */
#ifndef DOVETAIL_JSON_H
#define DOVETAIL_JSON_H

#include <stddef.h>
#include <stdint.h>

/* Some characters; not terminated. */
struct dovetail_text {
    const char *data;
    size_t bytes;
};

/* The next value of an array or an object, and its name there. `at` points behind the one before, at first to the
 * bracket; `end` behind the array or object. 0 at the end. */
int dovetail_json_next(const char **at, const char *end, struct dovetail_text *name, struct dovetail_text *value);

/* A value of an object by its name, or of an array by its number from 0 on; empty if there is none. */
struct dovetail_text dovetail_json_member(struct dovetail_text object, const char *name);
struct dovetail_text dovetail_json_element(struct dovetail_text array, uint32_t index);

/* How many values an array has. */
uint32_t dovetail_json_length(struct dovetail_text array);

/* Whether a value is this string (one without escapes). */
int dovetail_json_is(struct dovetail_text text, const char *string);

/* Whether a value is a whole number up to `most` (UINT32_MAX), and which. */
int dovetail_json_number(struct dovetail_text text, uint64_t most, uint64_t *value);
int dovetail_json_word(struct dovetail_text text, uint32_t *value);

#endif
