#include "worker/relay/binary.h"

/* dimensions, flags, type of the elements; number of elements and first index of the dimension */
#define HEAD_SIZE 20
#define LENGTH_SIZE 4

int64_t binary_number(const char *bytes, size_t len)
{
	uint64_t number = 0;

	if (len != 2 && len != 4 && len != 8)
		return 0;
	for (size_t i = 0; i < len; i++)
		number = number << 8 | (unsigned char)bytes[i];
	switch (len) {
	case 2:
		return (int16_t)number;
	case 4:
		return (int32_t)number;
	default:
		return (int64_t)number;
	}
}

struct binary_array binary_array_begin(const char *bytes, size_t len)
{
	if (len < HEAD_SIZE)
		return (struct binary_array){ .at = bytes };
	return (struct binary_array){ .at = bytes + HEAD_SIZE, .len = len - HEAD_SIZE };
}

const char *binary_array_next(struct binary_array *array, size_t *len)
{
	const char *element = array->at + LENGTH_SIZE;
	int64_t length;

	if (array->len < LENGTH_SIZE)
		return NULL;
	length = binary_number(array->at, LENGTH_SIZE);
	if (length < 0 || (uint64_t)length > array->len - LENGTH_SIZE)
		return NULL; /* below 0: SQL's NULL */
	*len = (size_t)length;
	array->at = element + *len;
	array->len -= LENGTH_SIZE + *len;
	return element;
}

int binary_array_number(struct binary_array *array, int64_t *number)
{
	size_t len;
	const char *bytes = binary_array_next(array, &len);

	if (!bytes)
		return -1;
	*number = binary_number(bytes, len);
	return 0;
}
