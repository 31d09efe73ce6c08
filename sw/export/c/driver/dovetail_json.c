/* See dovetail_json.h. */
#include "dovetail_json.h"

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        ++at;
    return at;
}

/* Behind a string that begins at `at`; `end` if it does not end. */
static const char *skip_string(const char *at, const char *end)
{
    for (++at; at < end && *at != '"'; ++at)
        if (*at == '\\' && at + 1 < end)
            ++at;
    return at < end ? at + 1 : end;
}

static int is_one_of(char c, const char *set)
{
    while (*set && *set != c)
        ++set;
    return *set != 0;
}

/* Behind the value that begins at `at`. */
static const char *skip_value(const char *at, const char *end)
{
    size_t depth = 0;
    do {
        at = skip_space(at, end);
        if (at == end)
            return end;
        if (*at == '"') {
            at = skip_string(at, end);
        } else if (is_one_of(*at, "{[")) {
            ++depth;
            ++at;
        } else if (is_one_of(*at, "}],:")) {
            if (!depth)
                return at;
            if (is_one_of(*at, "}]"))
                --depth;
            ++at;
        } else {
            while (at < end && !is_one_of(*at, " \n\r\t\"{}[],:"))
                ++at;
        }
    } while (depth);
    return at;
}

int dovetail_json_next(const char **at, const char *end, struct dovetail_text *name, struct dovetail_text *value)
{
    const char *begin = skip_space(*at, end);
    if (begin == end || !is_one_of(*begin, "{[,"))
        return 0;
    begin = skip_space(begin + 1, end);
    *at = skip_value(begin, end);
    name->data = begin;
    name->bytes = (size_t)(*at - begin);
    *at = skip_space(*at, end);
    if (*at < end && **at == ':') {
        begin = skip_space(*at + 1, end);
        *at = skip_value(begin, end);
    }
    value->data = begin;
    value->bytes = (size_t)(*at - begin);
    return value->bytes != 0;
}

int dovetail_json_is(struct dovetail_text text, const char *string)
{
    size_t i;
    if (text.bytes < 2)
        return 0;
    for (i = 0; i < text.bytes - 2 && string[i] == text.data[i + 1] && string[i]; ++i)
        ;
    return i == text.bytes - 2 && !string[i];
}

struct dovetail_text dovetail_json_member(struct dovetail_text object, const char *name)
{
    const struct dovetail_text none = {"", 0};
    const char *at = object.data;
    struct dovetail_text key, value;
    while (dovetail_json_next(&at, object.data + object.bytes, &key, &value))
        if (dovetail_json_is(key, name))
            return value;
    return none;
}

struct dovetail_text dovetail_json_element(struct dovetail_text array, uint32_t index)
{
    const struct dovetail_text none = {"", 0};
    const char *at = array.data;
    struct dovetail_text name, value;
    while (dovetail_json_next(&at, array.data + array.bytes, &name, &value))
        if (!index--)
            return value;
    return none;
}

uint32_t dovetail_json_length(struct dovetail_text array)
{
    uint32_t count = 0;
    const char *at = array.data;
    struct dovetail_text name, value;
    while (dovetail_json_next(&at, array.data + array.bytes, &name, &value))
        ++count;
    return count;
}

int dovetail_json_number(struct dovetail_text text, uint64_t most, uint64_t *value)
{
    size_t i;
    *value = 0;
    for (i = 0; i < text.bytes; ++i) {
        const unsigned digit = (unsigned)text.data[i] - '0';
        if (digit > 9 || digit > most || *value > (most - digit) / 10)
            return 0;
        *value = *value * 10 + digit;
    }
    return text.bytes != 0;
}

int dovetail_json_word(struct dovetail_text text, uint32_t *value)
{
    uint64_t wide;
    const int valid = dovetail_json_number(text, UINT32_MAX, &wide);
    *value = (uint32_t)wide;
    return valid;
}
